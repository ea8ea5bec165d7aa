"""The explorer without a browser: its answers are the library's, what it keeps is improve's run, and strangers get nothing."""

from __future__ import annotations

import http.client
import json
import math
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from bettersafe.cli import main
from bettersafe.errors import ParameterError, RunError
from bettersafe.explore import answers, cache, keeping, requests
from bettersafe.explore import session as explore
from bettersafe.explore.server import LARGEST_REQUEST, Explorer
from bettersafe.logs.counts_file import save_counts
from bettersafe.logs.dataset import Objective
from bettersafe.logs.source import count_files
from bettersafe.mdp.values import policy_values
from bettersafe.methods.s_opt import s_opt
from bettersafe.model import estimate_baseline, estimate_model
from bettersafe.posterior.linearised import linearised_gains
from bettersafe.posterior.priors import PriorSet, pessimistic, posterior
from bettersafe.runs.run import load_run
from bettersafe.tasks.inputs import PAIR_REWARDS
from bettersafe.tasks.task import Rare, Task
from bettersafe.tasks.toml import read_task
from patience import TIMEOUT

BETTERSAFE = str(Path(sys.executable).parent / "bettersafe")
ACTIONS = ("wait & see", "treat", "<b>operate</b>")


def write_ward(path, n=250, seed=3, never=0):
    """A log of a ward: 12 states, three actions, relief (a reward) and pain (a cost); no operations in the first ``never`` beds."""
    rng = np.random.default_rng(seed)
    kind = np.random.default_rng(1)
    good, hurt = kind.uniform(0, 1, (12, 3)), kind.uniform(0, 2, (12, 3))
    lines = ["episode,step,state,action,relief,pain,next_state,terminated"]
    for episode in range(n):
        x = int(rng.integers(12))
        for step in range(6):
            a = int(rng.choice(3, p=[0.5, 0.4, 0.1]))
            a = 0 if x < never and a == 2 else a
            end = rng.random() < 0.25 or step == 5
            y = int((x + 1 + a * rng.integers(1, 4)) % 12)
            after = "" if end else f"bed {y}"
            lines.append(
                f"{episode},{step},bed {x},{ACTIONS[a]},{rng.random() < good[x, a]:d},{hurt[x, a] + rng.integers(2):.1f},{after},{str(end).lower()}"
            )
            if end:
                break
            x = y
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def ward_task(log, **more):
    return Task(
        data=str(log),
        objectives=(Objective(name="relief", discount=0.9), Objective(name="pain", discount=0.9, lower_is_better=True)),
        **more,
    )


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return write_ward(tmp_path_factory.mktemp("ward") / "ward.csv")


@pytest.fixture(scope="module")
def session(log):
    return explore.open_session(ward_task(log))


def settings_of(relief=1.0, pain=1.0, epsilon=0.5, delta=0.1, zeta=(0.0, 0.0)):
    return explore.Settings(preference=(relief, pain), epsilon=epsilon, delta=delta, zeta=zeta)


def document_of(**changes):
    document = {
        "preference": {"relief": 1.0, "pain": 1.0}, "epsilon": 0.5, "delta": 0.1, "zeta": {"relief": 0.0, "pain": 0.0},
    }  # fmt: skip
    return {**document, **changes}


# Answers


@pytest.mark.parametrize(
    "settings",
    [
        settings_of(),
        settings_of(relief=0.0, epsilon=3.0),
        settings_of(relief=0.3, pain=0.7, delta=0.4),
        settings_of(epsilon=math.inf),
    ],
)
def test_answers_are_the_librarys(session, log, settings):
    counts = count_files(str(log), objectives=session.task.objectives)
    baseline = estimate_baseline(counts)
    model = estimate_model(counts, delta=settings.delta)
    expected = s_opt(model, baseline, preference=settings.preference, epsilon=settings.epsilon)
    found = explore.solve(session, settings)
    np.testing.assert_array_equal(found.policy, expected.policy)
    answer = answers.answer(session, settings, found)
    assert [row["policy"] for row in answer["objectives"]] == [expected.policy_return[0], -expected.policy_return[1]]
    assert [row["baseline"] for row in answer["objectives"]] == [
        expected.baseline_return[0],
        -expected.baseline_return[1],
    ]
    gain = expected.policy_return - expected.baseline_return
    assert [row["gain"] for row in answer["objectives"]] == gain.tolist()
    assert answer["changed"] == len({x for x in range(12) if np.any(expected.policy[x] != baseline[x])}) > 0

    # the table, by a twin that goes through it row by row
    visits = {x: sum(counts.pair_count[counts.pair_state == x]) for x in range(12)}
    moved = {x: sum(abs(expected.policy[x, a] - baseline[x, a]) for a in range(3)) / 2 for x in range(12)}
    assert answer["moved"] == pytest.approx(sum(visits[x] * moved[x] for x in visits) / sum(visits.values()))
    order = sorted((x for x in visits if moved[x] > 0), key=lambda x: -visits[x] * moved[x])
    assert [row["state"] for row in answer["changes"]] == [str(counts.state_labels[x]) for x in order]
    for row, x in zip(answer["changes"], order, strict=True):
        assert row["visits"] == visits[x]
        for action, before, after in row["less"] + row["more"]:
            a = counts.action_labels.tolist().index(action)
            assert (before, after) == (baseline[x, a], expected.policy[x, a])


def test_a_search_looks_at_states_and_at_actions_that_change(session):
    found = explore.solve(session, settings_of())
    everything = answers.answer(session, settings_of(), found)
    one = answers.answer(session, settings_of(), found, search="BED 1")
    assert [row["state"] for row in one["changes"]] == [
        row["state"] for row in everything["changes"] if row["state"].startswith("bed 1")
    ]
    assert one["matching"] == len(one["changes"]) < everything["matching"]
    treated = answers.answer(session, settings_of(), found, search="operate")
    moved = [
        row["state"]
        for row in everything["changes"]
        if any(move[0] == "<b>operate</b>" for move in row["less"] + row["more"])
    ]
    assert [row["state"] for row in treated["changes"]] == moved
    assert answers.answer(session, settings_of(), found, search="no such thing")["changes"] == []


@pytest.mark.parametrize("settings", [settings_of(), settings_of(relief=1.0, pain=0.0, epsilon=math.inf, delta=0.3)])
@pytest.mark.parametrize("zeta", [(0.0, 0.0), (0.3, 0.8)])
def test_beliefs_are_the_linearised_posteriors(session, settings, zeta):
    assert_belief(session, replace(settings, zeta=zeta))


def test_beliefs_of_what_was_never_tried(tmp_path):
    session = explore.open_session(ward_task(write_ward(tmp_path / "ward.csv", never=5)))
    settings = settings_of(relief=0.0, epsilon=math.inf)
    # an end that costs nothing, which is what the model takes the untried for, is best for pain
    assert np.any(explore.solve(session, settings).policy[session.baseline == 0.0] > 0.0)
    assert_belief(session, settings)


@pytest.mark.parametrize(("prior", "pessimism"), [("support", 1.0), ("hierarchical", 4.0)])
def test_beliefs_are_under_the_priors_of_the_task(log, prior, pessimism):
    session = explore.open_session(ward_task(log, prior=prior, pessimism=pessimism))
    assert_belief(session, settings_of(epsilon=3.0))


def test_without_pessimistic_priors_nothing_is_said_of_them(log):
    session = explore.open_session(ward_task(log, pessimism=0.0))
    belief = cache.Cache(session).believe(settings_of(epsilon=3.0))
    assert belief["p_pessimistic"] is None
    assert {row["p_no_worse_pessimistic"] for row in belief["objectives"]} == {None}
    assert "worst" not in belief["verdict"] + belief["evidence"]
    assert belief["level"] == ("likely" if belief["p_safe"] >= 0.9 else "doubtful")


def test_counts_are_explored_as_the_log_is(session, log, tmp_path):
    objectives = session.task.objectives
    counts = count_files(str(log), objectives=objectives)
    save_counts(counts, tmp_path / "counts.parquet")
    counted = explore.open_session(Task(data=str(tmp_path / "counts.parquet"), objectives=objectives))
    assert PAIR_REWARDS in counted.counts.notes
    settings = settings_of(epsilon=3.0)
    found = explore.solve(counted, settings)
    np.testing.assert_array_equal(found.policy, explore.solve(session, settings).policy)
    assert_belief(counted, settings)
    kept = keeping.keep(counted, settings, "mine", tmp_path)
    words = shlex.split(kept["command"])
    words[words.index("-o") + 1] = str(tmp_path / "again")
    assert CliRunner().invoke(main.app, words[1:]).exit_code in (0, 3)
    assert documents(tmp_path / "again") == documents(tmp_path / "mine")
    assert CliRunner().invoke(main.app, shlex.split(kept["next"])[1:]).exit_code in (0, 3)


def assert_belief(session, settings):
    zeta = settings.zeta
    found = explore.solve(session, settings)
    belief = answers.believe(session, settings, found, explore.spread(session, found.policy))
    outcomes = session.priors[0].outcomes
    neutral = posterior(outcomes, PriorSet(neutral=session.task.prior, pessimism=session.task.pessimism))
    mean, covariance = linearised_gains(neutral, found.policy[None], session.baseline)
    v, _ = policy_values(session.model.mdp, session.baseline)
    dark_lost = 0.0
    for k, row in enumerate(belief["objectives"]):
        sd = covariance[0, k, k] ** 0.5
        assert row["gain"] == pytest.approx(mean[0, k])
        low, high = stats.norm.interval(1.0 - settings.delta, mean[0, k], sd)
        assert (row["low"], row["high"]) == pytest.approx((low, high))
        assert row["p_no_worse"] == pytest.approx(stats.norm.sf(-zeta[k], mean[0, k], sd), abs=1e-12)
        dark = pessimistic(neutral, k, v)
        dark_mean, dark_covariance = linearised_gains(dark, found.policy[None], session.baseline)
        risk = stats.norm.cdf(-zeta[k], dark_mean[0, k], dark_covariance[0, k, k] ** 0.5)
        assert row["p_no_worse_pessimistic"] == pytest.approx(1.0 - risk, abs=1e-9)
        dark_lost += risk
    normal = stats.multivariate_normal(mean[0], covariance[0], allow_singular=True)
    p_safe = float(normal.cdf(np.full(len(zeta), np.inf), lower_limit=-np.array(zeta)))
    assert belief["p_safe"] == pytest.approx(p_safe, abs=2e-3)
    assert belief["p_pessimistic"] == pytest.approx(max(0.0, 1.0 - dark_lost), abs=1e-9)
    safe = p_safe >= 1.0 - settings.delta and dark_lost <= settings.delta
    assert belief["level"] == ("likely" if safe else "doubtful")
    assert belief["verdict"].startswith("Probably safe" if safe else "In doubt")
    assert "not a test" in belief["evidence"]


@pytest.mark.parametrize(
    ("p", "text"),
    [(1.0, "99.9"), (0.99995, "99.9"), (0.9987, "99.8"), (0.979, "97"), (0.9, "90"), (0.0099, "0.9")],
)
def test_probabilities_are_never_said_to_be_higher_than_they_are(p, text):
    assert answers.at_least(p) == f"at least {text} %"


def test_a_bound_that_says_nothing_is_called_that():
    assert answers.at_least(0.0).startswith("can't tell")
    assert [answers.about(p) for p in (1.0, 0.979, 0.004)] == ["over 99.9 %", "about 97 %", "under 1 %"]


def test_the_baseline_is_called_the_baseline(session):
    solutions = cache.Cache(session)
    for settings in (settings_of(epsilon=0.0), settings_of(relief=0.0, pain=0.0)):
        answer, belief = solutions.answer(settings), solutions.believe(settings)
        assert {row["side"] for row in answer["objectives"]} == {"same"}
        assert answer["changed"] == answer["moved"] == 0
        assert answer["changes"] == []
        assert belief["level"] == "baseline"
        assert "baseline is returned" in belief["verdict"]


def test_what_was_solved_is_not_solved_again(session, monkeypatch):
    solutions, solved = cache.Cache(session), []
    solve = explore.solve
    monkeypatch.setattr(cache, "solve", lambda s, settings: solved.append(settings) or solve(s, settings))
    solutions.answer(settings_of())
    solutions.believe(settings_of(zeta=(0.2, 0.2)))
    assert len(solved) == 1
    for i in range(cache.REMEMBERED + 5):
        solutions.answer(settings_of(epsilon=0.01 + i))
    solutions.answer(settings_of())  # forgotten since
    assert len(solved) == cache.REMEMBERED + 7


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ([], "settings"),
        ({**document_of(), "colour": 1}, "colour"),
        ({k: v for k, v in document_of().items() if k != "delta"}, "delta"),
        (document_of(epsilon=-0.1), "epsilon"),
        (document_of(epsilon="infinity"), "epsilon"),
        (document_of(epsilon=True), "epsilon"),
        (document_of(epsilon=math.nan), "epsilon"),
        (document_of(epsilon=None), "epsilon"),
        (document_of(delta=0.0), "delta"),
        (document_of(delta=1.1), "delta"),
        (document_of(preference={"relief": 1.0}), "pain"),
        (document_of(preference={"relief": 1.0, "pain": 1.0, "joy": 1.0}), "joy"),
        (document_of(preference={"relief": 1e300, "pain": 1.0}), "preference.relief"),
        (document_of(preference=[1.0, 1.0]), "preference"),
        (document_of(zeta={"relief": 0.0, "pain": -1.0}), "zeta.pain"),
        (document_of(zeta={"relief": 0.0, "pain": "1"}), "zeta.pain"),
    ],
)
def test_settings_that_are_none_are_named(session, document, field):
    with pytest.raises(requests.SettingError) as caught:
        requests.read_settings(document, session)
    assert caught.value.setting == field
    assert field in str(caught.value)


def test_settings_are_read_as_they_are_written(session):
    for settings in (settings_of(), settings_of(epsilon=math.inf, zeta=(0.0, 2.0))):
        written = json.loads(json.dumps(requests.settings_json(settings, session), allow_nan=False))
        assert requests.read_settings(written, session) == settings


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a\\b", ".hidden", "x" * 65, "naïve", "a b", "a\n", "-rf", 3, None]
)
def test_names_that_are_none(name):
    with pytest.raises(requests.SettingError, match="name must be"):
        requests.read_name(name)


@pytest.mark.parametrize("name", ["kept-1", "a..b", "A_1.2", "_"])
def test_names(name):
    assert requests.read_name(name) == name


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"method": "h-opt"}, "s-opt, soft-spibb"),
        ({"hold_out": 0.3}, "hold_out can't be used here"),
        ({"zeta": {"pain": -1.0}}, "negative"),
    ],
)
def test_what_can_not_be_explored(log, more, message):
    with pytest.raises(ParameterError, match=message):
        explore.open_session(ward_task(log, **more))


# Keeping


def documents(folder):
    """A run's documents without times and the digests that hang on them; and its policy's bytes."""
    run, certificate = (json.loads((folder / name).read_text()) for name in ("run.json", "certificate.json"))
    for document in (run, certificate):
        assert document.pop("created")
    for name in ("run_sha256", "sha256"):
        assert certificate.pop(name)
    return run, certificate, (folder / "policy.parquet").read_bytes()


TASK_FILE = """
data = "ward.csv"
epsilon = 0.2
[objectives.relief]
discount = 0.9
label = "Relief of symptoms"
range = [0, 1]
[objectives.pain]
discount = 0.9
lower_is_better = true
zeta = 0.25
[derived]
rare = { below = 20, reward = -1, discount = 0.9 }
"""


def test_what_is_kept_is_the_run_of_improve(session, tmp_path):
    settings = settings_of(relief=0.7, pain=0.1, epsilon=0.35, delta=0.2, zeta=(0.0, 0.4))
    kept = keeping.keep(session, settings, "mine", tmp_path / "runs")
    assert kept["path"] == str(tmp_path / "runs" / "mine")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["mine"]
    assert kept["name"] == "kept-1"
    assert "<html" in Path(kept["report"]).read_text(encoding="utf-8")
    assert Path(kept["report"]) == tmp_path / "runs" / "mine" / "report.html"
    found = load_run(kept["path"])
    np.testing.assert_array_equal(found.policy, explore.solve(session, settings).policy)
    words = shlex.split(kept["command"])
    assert words[:2] == ["bettersafe", "improve"]
    words[words.index("-o") + 1] = str(tmp_path / "again")
    result = CliRunner().invoke(main.app, words[1:])
    assert result.exit_code == 0, result.output
    assert documents(tmp_path / "again") == documents(tmp_path / "runs" / "mine")
    with pytest.raises(RunError, match="already has"):
        keeping.keep(session, settings, "mine", tmp_path / "runs")


def test_what_is_kept_of_a_task_file_is_the_run_of_improve(log, tmp_path):
    (tmp_path / "ward.csv").write_bytes(log.read_bytes())
    file = tmp_path / "task.toml"
    file.write_text(TASK_FILE)
    base = read_task(file)
    session = explore.open_session(replace(base, unseen="worst"), base=base, task_file=str(file))
    settings = explore.Settings(preference=(0.5, 0.25, 2.0), epsilon=math.inf, delta=0.1, zeta=(0.0, 0.0, 1.0))
    kept = keeping.keep(session, settings, "mine", tmp_path)
    words = shlex.split(kept["command"])
    words[words.index("-o") + 1] = str(tmp_path / "again")
    result = CliRunner().invoke(main.app, words[1:])
    assert result.exit_code == 0, result.output
    assert documents(tmp_path / "again") == documents(tmp_path / "mine")
    assert load_run(tmp_path / "mine").objectives[0].label == "Relief of symptoms"


def test_what_no_command_can_say_has_none(log, tmp_path):
    task = ward_task(log, derived=(Rare(below=20), Rare(name="rarer", below=5)))
    session = explore.open_session(task)
    start = explore.first_settings(session)
    assert len(start.preference) == 4
    assert keeping.keep(session, start, "mine", tmp_path)["command"] is None


def test_a_log_that_changed_is_not_kept(tmp_path):
    log = write_ward(tmp_path / "ward.csv", n=60)
    session = explore.open_session(ward_task(log))
    write_ward(log, n=61)
    with pytest.raises(RunError, match="has changed since"):
        keeping.keep(session, settings_of(), "mine", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


# The server


class Client:
    """A browser's part: a connection, a cookie, and headers as browsers send them."""

    def __init__(self, explorer):
        self.explorer, self.cookie = explorer, None
        self.origin = f"http://127.0.0.1:{explorer.port}"

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.explorer.port, timeout=TIMEOUT)
        sent = {} if method == "GET" else {"Origin": self.origin, "Content-Type": "application/json"}
        if self.cookie:
            sent["Cookie"] = self.cookie
        for name, value in headers.items():
            sent.pop(name.replace("_", "-"), None)
            if value is not None:
                sent[name.replace("_", "-")] = value
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return response.status, dict(response.headers), response.read()
        finally:
            connection.close()

    def post(self, path, body, **headers):
        status, _, content = self.ask("POST", path, body, **headers)
        return status, json.loads(content)

    def enter(self):
        address = urlsplit(self.explorer.url)
        status, headers, _ = self.ask("GET", f"{address.path}?{address.query}")
        self.cookie = headers["Set-Cookie"].partition(";")[0]
        return status, headers


@pytest.fixture
def explorer(session, tmp_path):
    with Explorer(session, tmp_path / "runs") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def client(explorer):
    client = Client(explorer)
    client.enter()
    return client


def test_the_link_is_exchanged_for_a_cookie_once(explorer):
    client = Client(explorer)
    address = urlsplit(explorer.url)
    link = f"/?{address.query}"
    assert client.ask("GET", "/")[0] == client.ask("GET", "/api/start")[0] == 403
    status, _, page = client.ask("GET", "/?token=guess")
    assert status == 403
    assert b"<h1>" in page
    assert b"link was used before" in page
    status, headers = client.enter()
    assert (status, headers["Location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in headers["Set-Cookie"].split(";")}
    assert client.ask("GET", "/")[0] == 200
    stranger = Client(explorer)
    assert stranger.ask("GET", link)[0] == 403
    assert stranger.ask("GET", link, Cookie=f"{explorer.cookie_name}=guess")[0] == 403
    status, headers, _ = client.ask("GET", link)  # opened again, in the same browser
    assert (status, headers["Location"]) == (303, "/")
    assert "Set-Cookie" not in headers
    assert "used" in explorer.url


def test_only_this_page_is_answered(client, explorer):
    good = {"settings": document_of()}
    port = explorer.port
    assert client.post("/api/answer", good)[0] == 200
    assert client.post("/api/answer", good, Cookie=None)[0] == 403
    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", ""):
        assert client.ask("GET", "/", Host=host)[0] == 403
        assert client.post("/api/answer", good, Host=host, Origin=f"http://{host}")[0] == 403
    for origin in (None, "null", "http://evil.example", f"http://127.0.0.1:{port + 1}", f"https://127.0.0.1:{port}"):
        assert client.post("/api/answer", good, Origin=origin)[0] == 403
    assert client.ask("GET", "/api/start", Origin="http://evil.example")[0] == 403


def test_what_the_server_does_not_take(client):
    good = {"settings": document_of()}
    big = b"[" + b" " * LARGEST_REQUEST + b"]"
    assert client.post("/api/answer", big)[0] == 413
    assert client.post("/api/answer", b"{}", Content_Length="9" * 30)[0] == 413
    assert client.post("/api/answer", b" " * (LARGEST_REQUEST - 2) + b"{}")[1]["field"] == "settings"
    assert client.post("/api/answer", good, Content_Type="text/plain")[0] == 415
    assert client.post("/api/answer", b"{")[0] == 400
    assert client.post("/api/answer", b"[" * 30_000)[0] == 400
    assert client.post("/api/answer", b'{"settings": NaN}')[0] == 400
    assert client.post("/api/answer", b"{}", Content_Length="many")[0] == 411
    assert client.post("/api/answer", b"0\r\n\r\n", Transfer_Encoding="chunked", Content_Length=None)[0] == 411
    assert client.post("/api/nothing", good)[0] == 404
    assert client.ask("GET", "/../server.py")[0] == client.ask("GET", "/session.py")[0] == 404
    assert client.ask("DELETE", "/")[0] == 501
    for body, field in [
        ({**good, "more": 1}, "more"),
        ({}, "settings"),
        ({**good, "search": "x" * 101}, "search"),
        ({"settings": document_of(epsilon=-1)}, "epsilon"),
    ]:
        status, said = client.post("/api/answer", body)
        assert (status, said["field"]) == (400, field)
        assert field in said["error"]


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "..", ".", "a/../../b", "", "a\u0000b"])
def test_a_name_is_never_a_path(client, explorer, name):
    before = sorted(explorer.folder.parent.rglob("*"))
    status, said = client.post("/api/keep", {"settings": document_of(), "name": name})
    assert (status, said["field"]) == (400, "name")
    assert sorted(explorer.folder.parent.rglob("*")) == before


def test_answers_beliefs_and_runs_over_http(client, explorer, session):
    settings = settings_of(epsilon=0.8)
    document = requests.settings_json(settings, session)
    found = explore.solve(session, settings)
    expected = json.loads(json.dumps(answers.answer(session, settings, found, search="bed 2")))
    assert client.post("/api/answer", {"settings": document, "search": "bed 2"}) == (200, expected)
    belief = answers.believe(session, settings, found, explore.spread(session, found.policy))
    assert client.post("/api/believe", {"settings": document}) == (200, json.loads(json.dumps(belief)))
    status, kept = client.post("/api/keep", {"settings": document, "name": "one"})
    assert status == 200
    np.testing.assert_array_equal(load_run(kept["path"]).policy, found.policy)
    status, said = client.post("/api/keep", {"settings": document, "name": "one"})
    assert (status, said["error"]) == (409, f"{kept['path']} already has a run; choose another name.")
    start = json.loads(client.ask("GET", "/api/start")[2])
    assert start["name"] == "kept-1"
    assert start["settings"] == requests.settings_json(explore.first_settings(session), session)


def test_every_answer_is_locked_up(client):
    for path in ("/", "/explore.js", "/explore.css", "/api/start", "/nothing", "/?token=no", "/favicon.ico"):
        _, headers, _ = client.ask("GET", path)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers


def test_many_ask_at_once_and_each_gets_its_own(client, session):
    budgets = [0.1, 0.4, 0.9, 1.6, 2.5, 3.6]
    got = {}

    def ask(epsilon):
        got[epsilon] = client.post("/api/answer", {"settings": document_of(epsilon=epsilon)})

    threads = [threading.Thread(target=ask, args=(epsilon,)) for epsilon in budgets * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for epsilon in budgets:
        settings = settings_of(epsilon=epsilon)
        expected = answers.answer(session, settings, explore.solve(session, settings))
        assert got[epsilon] == (200, json.loads(json.dumps(expected)))


def test_a_bug_is_said_to_be_one(client, explorer, monkeypatch, capsys):
    def broken(*_, **__):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(explorer.cache, "answer", broken)
    status, said = client.post("/api/answer", {"settings": document_of()})
    assert status == 500
    assert "bug" in said["error"]
    assert "secret" not in said["error"]
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_port_that_is_taken_is_said(session, explorer, tmp_path):
    with pytest.raises(ParameterError, match=f"port {explorer.port} can't be used"):
        Explorer(session, tmp_path, port=explorer.port)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_the_link_and_ends_cleanly(log, tmp_path, how):
    words = [BETTERSAFE, "explore", str(log), "--objective", "relief", "--no-browser", "--json", "-o", str(tmp_path)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"}
    )
    try:
        address = urlsplit(json.loads(process.stdout.readline())["url"])
        assert address.hostname == "127.0.0.1"
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=TIMEOUT)
        connection.request("GET", f"/?{address.query}")
        assert connection.getresponse().status == 303
        process.send_signal(how)
        out, err = process.communicate(timeout=TIMEOUT)
        connection.close()
    finally:
        process.kill()
    assert (process.returncode, out, err) == (0, "", "")
    with socket.socket() as free, pytest.raises(ConnectionRefusedError):
        free.connect(("127.0.0.1", address.port))
