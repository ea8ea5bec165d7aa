"""The report in a browser, opened from disk: it works, asks for nothing, and can be read on a phone, in the dark and by keyboard."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from bettersafe.certificate.certificate import Certificate, Finding
from bettersafe.logs.dataset import Objective
from bettersafe.report.page import report_html
from bettersafe.runs.run import Run
from patience import TIMEOUT
from toy_runs import toy_candidate, toy_info

NASTY = "</script><b>bold</b>"

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

# Contrast of every element that has text of its own against what is painted behind it, by the formula of WCAG 2.
CONTRAST = """() => {
  const context = Object.assign(document.createElement('canvas'), {width: 1, height: 1}).getContext('2d', {willReadFrequently: true});
  const channels = (colour) => {
    context.clearRect(0, 0, 1, 1); context.fillStyle = colour; context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = channels(getComputedStyle(e).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !element.checkVisibility() || ['SCRIPT', 'STYLE', 'OPTION'].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const ink = element instanceof SVGElement ? style.fill : style.color;
    const box = element.closest('svg') ? [behind(element), channels(getComputedStyle(document.documentElement).getPropertyValue('--safe'))] : [behind(element)];
    for (const ground of box) {
      const [one, other] = [light(channels(ink)), light(ground)];
      const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
      const size = parseFloat(style.fontSize);
      const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
      if (ratio < (large ? 3 : 4.5)) found.push([element.tagName, element.className.baseVal ?? element.className, element.textContent.trim().slice(0, 30), ratio.toFixed(2)]);
    }
  }
  return found;
}"""


def make_run(*, accepted=True, grid=True, more=0):
    """Three objectives or more, sixty states, of which one has a nasty name, and two choices at once, or five actions."""
    rng = np.random.default_rng(3)
    actions = (
        [f"iv{i}/vaso{j}" for i in range(5) for j in range(5)] if grid else ["wait", "see", "treat", NASTY, "call"]
    )
    states = np.array([NASTY, "the longest_name_of_a_state_without_any_space_" * 3, *(f"ward {x}" for x in range(58))])
    baseline = rng.dirichlet(np.ones(len(actions)), size=60)
    policy = 0.8 * baseline + 0.2 * rng.dirichlet(np.ones(len(actions)), size=60)
    objectives = (
        Objective(name="survival"),
        Objective(name="pain", lower_is_better=True, label="Pain", unit="points", weight=0.0),
        Objective(name="cost", lower_is_better=True, weight=0.5),
        *(Objective(name=f"protected {k}", weight=0.0) for k in range(more)),
    )
    gains = (0.4, 0.1, 2.0) + (0.3,) * more
    certificate = Certificate(
        findings=tuple(
            Finding(objective=o.name, estimate=g, lower_bound=g / 2 if accepted else -g, level=0.03, zeta=0.0)
            for o, g in zip(objectives, gains, strict=True)
        ),
        evidence="held-out",
        grade="approximate",
        assumptions=("Episodes are independent of each other.",),
        delta=0.1,
        settings={"estimator": "dr"},
        data={"tested_on": {"episodes": 900}},
    )
    rows = tuple(
        {
            "estimator": estimator, "objective": o.name, "value": 1.25, "low": 1.0, "high": 1.5, "level": 0.9, "episodes": 900,
            "effective_sample_size": 700.0, "mean_weight": 1.01, "unsupported_share": 0.0, "usable": estimator == "dr",
            "trust": "Can be used.", "baseline_value": 1.0, "baseline_low": 0.9, "baseline_high": 1.1, "horizon": None,
            "complete": estimator == "dr", "longest_episode": 20, "truncated_episodes": 300,
        }
        for estimator in ("logged", "is", "dr") for o in objectives
    )  # fmt: skip
    candidates = tuple(
        toy_candidate(
            name=f"{i}0 %",
            gain=tuple(g * i / 4 for g in gains),
            least=(0.0,) * len(gains),
            passed=i < 4,
            believed=False,
        )
        for i in range(1, 6)
    )
    return Run(
        proposal=policy,
        baseline=baseline,
        counts=rng.poisson(15.0 * baseline * len(actions)),
        state_labels=states,
        action_labels=np.array(actions),
        objectives=objectives,
        baseline_return=np.array([1.0, -2.0, -30.0] + [3.0] * more),
        proposal_return=np.array([1.5, -1.8, -27.0] + [3.5] * more),
        info=toy_info(
            n_states=60,
            n_actions=len(actions),
            objectives=objectives,
            method="h-opt",
            epsilon=np.inf,
            candidates=candidates,
            status="The policy changes 60 of 60 states.",
        ),
        certificate=certificate,
        evaluation=rows,
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Reports on disk, by name."""
    folder = tmp_path_factory.mktemp("pages")
    runs = {"accepted": make_run(), "kept": make_run(accepted=False, grid=False), "many": make_run(more=17)}
    for name, run in runs.items():
        digests = {"run.json": "a" * 64}
        (folder / f"{name}.html").write_text(report_html(run, name=name, digests=digests), encoding="utf-8")
    return folder


@pytest.fixture
def visit(browser, pages):
    """Open a report; when the test is over nothing must have gone wrong, and nothing been asked for outside."""
    contexts, troubles = [], []

    def opened(name="accepted", *, width=1280, scheme="light", script=True):
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=script
        )
        context.set_default_timeout(1000 * TIMEOUT)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        address = (pages / f"{name}.html").as_uri()
        page.on("request", lambda request: request.url.split("#")[0] == address or troubles.append(request.url))
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.mark.parametrize("name", ["accepted", "kept"])
def test_it_opens_and_every_chart_is_drawn(visit, name):
    page = visit(name)
    assert page.locator("h1").is_visible()
    assert page.locator("b").count() == 0  # a label of the run wants to be one
    sizes = page.eval_on_selector_all(
        "svg.chart", "all => all.filter(s => s.checkVisibility()).map(s => [s.getBoundingClientRect().width, s.querySelectorAll('circle, rect, path').length])"
    )  # fmt: skip
    assert len(sizes) == (
        5 if name == "accepted" else 6
    )  # 3 objectives, a trade-off, coverage, and the actions if no grid
    assert all(width > 200 and shapes > 0 for width, shapes in sizes)
    inside = page.eval_on_selector_all(
        "svg.chart", """all => all.filter(s => s.checkVisibility()).flatMap(s => { const f = s.getBoundingClientRect();
          return [...s.querySelectorAll('text')].map(t => [t.getBoundingClientRect(), f, t.textContent]).filter(([b, f]) => b.left < f.left - 2 || b.right > f.right + 2)
            .map(([, , text]) => text) })"""
    )  # fmt: skip
    assert inside == []


def test_every_table_of_estimates_says_of_which_steps_it_is(visit):
    """Captions are for screen readers alone, so the steps are also headings that can be seen."""
    page = visit()
    heads = page.locator("#limits h4")
    assert heads.all_inner_texts() == [
        "All steps, also after logging stopped",
        "Logged steps only, up to 20 steps; 300 of 900 episodes are cut off",
    ]
    assert all(head.is_visible() for head in heads.all())
    first = page.locator("#limits table", has=page.get_by_text("the baseline, by doubly robust"))
    assert "importance sampling" not in first.inner_text()
    assert "as logged" not in first.inner_text()
    assert (
        page.locator("#objectives .aside")
        .nth(1)
        .inner_text()
        .endswith("(up to 20 steps; 300 of 900 episodes are cut off).")
    )


def test_search_and_sort(visit):
    page = visit()
    rows = page.locator("#changes tbody tr:visible")
    assert rows.count() == 60
    page.get_by_label("Search").fill("WARD 17")
    assert rows.count() == 1
    assert page.locator("#found").inner_text() == "1 of 60 shown"
    page.get_by_label("Search").fill("</script>")
    assert rows.count() == 1
    page.get_by_label("Search").fill("")
    page.locator("#changes").get_by_role("button", name="Visits", exact=True).press("Enter")
    visits = page.eval_on_selector_all("#changes tbody tr", "all => all.map(r => Number(r.cells[1].dataset.value))")
    assert visits == sorted(visits, reverse=True)
    assert page.locator("#changes th[aria-sort]").inner_text().startswith("Visits")
    page.locator("#changes").get_by_role("button", name="State").click()
    names = page.locator("#changes tbody th").all_inner_texts()
    wards = [int(name.split()[1]) for name in names if name.startswith("ward")]
    assert wards == sorted(wards)


def test_pickers(visit):
    page = visit()
    assert page.locator(".picture:visible").count() == 1
    page.locator("#pick-y").select_option(label="cost")
    assert page.locator(".picture:visible figcaption").inner_text() == "survival and cost"
    page.locator("#pick-x").select_option(label="cost")  # the same on both: the other gives way
    assert page.locator(".picture:visible figcaption").inner_text() == "survival and cost"
    cell = page.locator(".heat-b td").first
    before = cell.inner_text()
    page.locator("#grid-state").select_option(index=1)
    run = make_run()
    weight = np.abs(run.proposal - run.baseline).sum(axis=1) * run.counts.sum(axis=1)
    x = int(np.argmax(weight))
    assert cell.inner_text() == f"{100 * round(run.baseline[x, 0], 4):.1f}"
    assert str(run.state_labels[x])[:20] in page.locator("#grid-about").inner_text()
    page.locator("#grid-state").select_option(index=0)
    assert cell.inner_text() == before


@pytest.mark.parametrize("name", ["accepted", "kept", "many"])
@pytest.mark.parametrize(("width", "scheme"), [(375, "dark"), (1280, "light")])
def test_it_fits_and_can_be_read(visit, name, scheme, width):
    page = visit(name, width=width, scheme=scheme)
    page.eval_on_selector_all("details", "all => all.forEach(d => { d.open = true })")
    assert page.evaluate(OVERFLOW) <= 0
    assert page.evaluate(CONTRAST) == []


def test_the_contrast_rule_can_fail(visit):
    page = visit()
    page.evaluate("document.querySelector('h1').style.color = '#e0e0e0'")
    assert [found[0] for found in page.evaluate(CONTRAST)] == ["H1"]


def test_dark_mode_has_a_switch(visit):
    page = visit()
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    button = page.get_by_role("button", name="Dark mode")
    assert button.get_attribute("aria-pressed") == "false"
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    assert page.evaluate(ground) != light
    page.emulate_media(media="print")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"  # paper is white


def test_everything_is_reached_by_keyboard(visit):
    page = visit("accepted")
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        what = page.evaluate(
            "(e => e === document.body ? '' : e.id || e.textContent.trim().slice(0, 40) || e.className)(document.activeElement)"
        )
        if what:
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", what
        reached.append(what)
    assert reached[0] == "Skip to the decision"
    for needed in (
        "theme",
        "print",
        "Objectives",
        "pick-x",
        "pick-y",
        "grid-state",
        "search",
        "Visits × moved",
        "The numbers behind the picture",
    ):
        assert needed in reached, needed


def test_a_screen_reader_finds_its_way(visit):
    page = visit()
    for landmark in ("banner", "main", "navigation", "contentinfo"):
        assert page.get_by_role(landmark).count() == 1, landmark
    levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    unnamed = page.eval_on_selector_all(
        "table", "all => all.filter(t => !t.caption || !t.caption.textContent.trim()).length"
    )
    assert unnamed == 0
    bare = page.eval_on_selector_all("input, select", "all => all.filter(e => !e.labels.length).length")
    assert bare == 0


def test_many_objectives_are_folded_and_all_there(visit):
    page = visit("many")
    assert page.locator("article:visible").count() == 8
    assert page.get_by_text("All 20 objectives in one table").is_visible()
    rows = page.locator("#all-objectives tbody tr")
    assert page.locator("#all-objectives tbody tr:visible").count() == 0
    page.locator("#all-objectives summary").press("Enter")
    assert [row.split()[0] for row in rows.locator("th").all_inner_texts()][:3] == ["survival", "Pain", "cost,"]
    assert page.locator("#all-objectives tbody tr:visible").count() == 20
    page.emulate_media(media="print")
    assert page.get_by_text("The page itself has all 20 objectives").is_visible()


def test_without_javascript_all_is_there(visit):
    page = visit(script=False)
    assert page.locator(".picture:visible").count() == 3
    assert page.locator("#changes tbody tr:visible").count() == 60
    assert not page.locator("#search").is_visible()
    assert page.locator(".heat:visible").count() == 3


def test_on_paper(visit, tmp_path):
    page = visit()
    page.emulate_media(media="print")
    assert not page.locator("#search").is_visible()
    assert page.locator("#changes tbody tr:visible").count() == 25
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").stat().st_size > 20_000


def test_scripts_that_are_not_ours_do_not_run(browser, pages, tmp_path):
    """The policy of the page stops what escaping would have let through."""
    html = (pages / "accepted.html").read_text(encoding="utf-8")
    Path(tmp_path / "page.html").write_text(
        html.replace("</main>", "<script>document.title = 'stolen'</script></main>"), encoding="utf-8"
    )
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    assert "stolen" not in page.title()
    page.close()
