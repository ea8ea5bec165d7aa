"""The explorer's server: who is answered, what, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from bettersafe.errors import ParameterError
from bettersafe.explore import answers, requests
from bettersafe.explore import session as explore
from bettersafe.explore.server import LARGEST_REQUEST, Explorer
from bettersafe.runs.run import load_run
from patience import TIMEOUT
from wards import document_of, settings_of

BETTERSAFE = str(Path(sys.executable).parent / "bettersafe")


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
