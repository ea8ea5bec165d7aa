"""How quickly the explorer answers, on the demonstration's cohort in headless Chromium; prints a Markdown table."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

BETTERSAFE = str(Path(sys.executable).parent / "bettersafe")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
RIGHT, LEFT = "ArrowRight", "ArrowLeft"

# settings that were never asked for, one after the other, as the page sends them; milliseconds of work by Server-Timing
ASK = """async (times) => {
  const found = { answer: [], believe: [], "δ alone": [] };
  const post = async (route, settings) => {
    const response = await fetch(`/api/${route}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ settings }) });
    await response.json();
    return Number(response.headers.get("Server-Timing").split("dur=")[1]);
  };
  for (let i = 0; i < times; i += 1) {
    const asked = structuredClone(settings);
    for (const name of Object.keys(asked.preference)) asked.preference[name] = Math.random();
    asked.epsilon = 10 ** (2.5 * Math.random() - 1.5);
    found.answer.push(await post("answer", asked));
    found.believe.push(await post("believe", asked));
    asked.delta = 0.02 + 0.4 * Math.random();
    found["δ alone"].push(await post("answer", asked));
  }
  return found;
}"""
# a drag: a step of the slider every 33 ms, as a key held down gives them
DRAG = """([id, step, steps]) => new Promise((done) => {
const slider = document.getElementById(id);
let left = steps;
const timer = setInterval(() => {
  slider.value = Number(slider.value) + step;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  left -= 1;
  if (!left) {
    clearInterval(timer);
    done();
  }
}, 33);
})"""
SETTLED = "() => !busy && belief && same(belief.settings, settings)"
MEASURES = (
    "() => { const found = performance.getEntriesByType('measure').map((m) => [m.name, m.duration]);"
    " performance.clearMeasures(); return found; }"
)


def line(name, milliseconds):
    p50, p95 = np.percentile(milliseconds, [50, 95])
    print(f"| {name} | {len(milliseconds)} | {p50:.0f} | {p95:.0f} |", flush=True)


def measured(page, seconds=20.0):
    """Durations by name since the last look, once the page is at rest."""
    end = time.monotonic() + seconds
    while not page.evaluate(SETTLED) and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.1)
    found = page.evaluate(MEASURES)
    return {name: [t for n, t in found if n == name] for name in ("picture", "belief")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        subprocess.run([BETTERSAFE, "demo", "-o", folder], check=True, stdout=subprocess.DEVNULL)
        words = ["--objective", "survival", "--rare-below", "10", "-o", f"{folder}/runs", "--no-browser", "--json"]
        begun = time.perf_counter()
        server = subprocess.Popen(
            [BETTERSAFE, "explore", f"{folder}/cohort.parquet", *words], stdout=subprocess.PIPE, text=True
        )
        url = json.loads(server.stdout.readline())["url"]
        started = time.perf_counter() - begun
        playwright = sync_playwright().start()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        try:
            load = os.getloadavg()[0]
            page.goto(url)
            measured(page)
            print(f"Started in {started:.1f} s; load of the machine's {os.cpu_count()} cores: {load:.1f}.\n")
            print("| what | times | median ms | 95 % ms |\n|---|---|---|---|")
            work = page.evaluate(ASK, options.times)
            line("server: policy, returns, changes", work["answer"])
            line("server: the same, δ moved alone", work["δ alone"])
            line("server: belief", work["believe"])
            slider = page.locator("#preference-0")
            alone = {"picture": [], "belief": []}
            for i in range(options.times):
                if i % 45 == 30:  # other settings, so that nothing is remembered
                    page.locator("#epsilon-slider").press(RIGHT)
                    measured(page)
                slider.press(RIGHT if (i // 45) % 2 == 0 else LEFT)
                for name, found in measured(page).items():
                    alone[name] += found
            line("page: input to picture, one step at a time", alone["picture"])
            line("page: input to belief, one step at a time", alone["belief"])
            dragged = {"picture": [], "belief": []}
            for i in range(max(options.times // 10, 1)):
                page.evaluate(DRAG, ["epsilon-slider", 1 if i % 2 == 0 else -1, 20])
                page.locator("#preference-1").press(LEFT)
                for name, found in measured(page).items():
                    dragged[name] += found
            line("page: input to picture, while dragging", dragged["picture"])
        finally:
            browser.close()
            playwright.stop()
            server.terminate()
            server.wait(timeout=30)


if __name__ == "__main__":
    main()
