// The explorer's page. It holds the state of the exploration; the server only answers. Nothing is loaded from elsewhere.
"use strict";

const $ = (id) => document.getElementById(id);
const NS = "http://www.w3.org/2000/svg";

/** An HTML element; `options` are properties, or attributes where the name has a hyphen. */
function el(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key.includes("-") || key === "for" || key === "role") node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children);
  return node;
}

/** An SVG element. */
function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(NS, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// Number formats

/** Number of decimals with which the largest value has so many significant digits, as in text.numbers. */
function precision(values, digits = 3) {
  const size = Math.max(...values.map(Math.abs));
  return size === 0 ? 0 : Math.min(Math.max(digits - 1 - Math.floor(Math.log10(size)), 0), 7);
}
/** Number of decimals for two numbers side by side, so that their difference has two digits. */
function precisionOfChange(before, after) {
  const same = Math.abs(after - before) <= 1e-9 * Math.max(1, Math.abs(before));
  return Math.max(precision([before, after]), precision([same ? 0 : after - before], 2));
}
/** A number with so many decimals; without them three significant digits, and no zeros at the end. */
function fmt(value, decimals = null) {
  const size = Math.abs(value);
  let text = size.toFixed(decimals ?? precision([value]));
  if (size !== 0 && (size >= 1e7 || size < 1e-4)) text = size.toExponential(2).replace("+", "");
  else if (decimals === null && text.includes(".")) text = text.replace(/\.?0+$/, "");
  const [whole, ...rest] = text.split(".");
  const sign = value < 0 && /[1-9]/.test(text) ? "−" : "";
  return sign + [whole.replace(/\B(?=(\d{3})+$)/g, ","), ...rest].join(".");
}
function between(low, high) {
  const decimals = precisionOfChange(low, high);
  const [lower, upper] = [low, high].map((value) => fmt(Math.abs(value), decimals));
  if (low >= 0) return `better by ${lower} to ${upper}`;
  if (high <= 0) return `worse by ${upper} to ${lower}`;
  return `from ${lower} worse to ${upper} better`;
}
function percent(p) {
  if (p > 0.999) return "over 99.9 %";
  if (p < 0.001) return "under 0.1 %";
  return `${(100 * p).toFixed(p > 0.99 || p < 0.01 ? 1 : 0)} %`;
}
/** A lower bound on a probability: rounded down, and never certainty; 0 says nothing. */
function atLeast(p) {
  if (p <= 0) return "can’t tell";
  const parts = p > 0.99 || p < 0.01 ? 10 : 1;
  return `at least ${Math.min(Math.floor(100 * p * parts + 1e-9) / parts, 99.9)} %`;
}
/** A probability that was estimated: rounded down. */
function about(p) {
  if (p > 0.999) return "over 99.9 %";
  return p >= 0.01 ? `about ${Math.floor(100 * p + 1e-9)} %` : "under 1 %";
}
const share = (p) => `${fmt(Number((100 * p).toPrecision(3)))} %`;

// State: `start` is the initial data of the server, `settings` the values of the controls, `shown` the last answer drawn

let start = null;
let settings = null;
let shown = null;
let belief = null;
let path = []; // {settings, objectives, moved, level}, in the order visited
let here = -1; // position of the shown settings in the path
let asked = 0; // number of the newest settings
let drawn = 0; // number of the settings drawn
let busy = false; // a request is pending
let began = null; // time of the input that the next drawing shows
let settle = 0; // timer until the controls have not moved for a while
let looking = 0; // timer of the search
let away = 0; // timer while the server is not reachable
const knobs = [];
const reach = {}; // largest range so far, so that axes only grow and do not jitter

// Requests to the server

async function call(route, body, patience = 60) {
  const request = { cache: "no-store", signal: AbortSignal.timeout(1000 * patience) };
  if (body !== undefined) {
    request.method = "POST";
    request.headers = { "Content-Type": "application/json" };
    request.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(route, request);
  } catch {
    throw Object.assign(new Error("gone"), { gone: true });
  }
  const document = await response.json().catch(() => ({ error: "the answer can't be read." }));
  if (!response.ok) {
    throw Object.assign(new Error(document.error || response.statusText), { status: response.status, field: document.field });
  }
  return document;
}

function lost(error) {
  const text =
    error.status === 403
      ? "The explorer was started again: open the new link that it printed in this browser. This page then continues."
      : error.gone
        ? "The explorer has stopped. Start it again on the same port, and open the link that it prints: this page then continues."
        : `Something went wrong: ${error.message}`;
  if ($("gone").textContent !== text) $("gone").textContent = text;
  $("gone").hidden = false;
  if ((error.gone || error.status === 403) && !away) away = setTimeout(again, 1000);
}

async function again() {
  away = 0;
  try {
    const now = await call("/api/start");
    if (start && now.data.sha256 !== start.data.sha256) {
      location.reload(); // another log: the state of this page does not apply
      return;
    }
    $("gone").hidden = true;
    if (start) input();
    else begin(now);
  } catch (error) {
    lost(error);
  }
}

// One request at a time; settings that changed meanwhile are sent next; answers older than the one drawn are dropped

function input() {
  asked += 1;
  if (began === null) began = performance.now();
  clearTimeout(settle);
  if (!busy) ask();
}

async function ask() {
  busy = true;
  const number = asked;
  const since = began;
  began = null;
  try {
    const answer = await call("/api/answer", { settings, search: $("search").value });
    if (number > drawn) {
      drawn = number;
      drawAnswer(answer);
      requestAnimationFrame(() => performance.measure("picture", { start: since ?? performance.now() }));
      $("gone").hidden = true;
    }
  } catch (error) {
    lost(error);
    busy = false;
    return;
  }
  busy = false;
  if (asked > number) ask();
  else settle = setTimeout(believe, 120, number, since); // the posterior takes longer than an answer: not at every step of a drag
}

async function believe(number, since) {
  const about = JSON.stringify(settings);
  try {
    const answer = await call("/api/believe", { settings });
    if (number !== asked || JSON.stringify(settings) !== about) return; // stale
    drawBelief(answer);
    requestAnimationFrame(() => performance.measure("belief", { start: since ?? performance.now() }));
  } catch (error) {
    lost(error);
    return;
  }
  settle = setTimeout(visit, 350);
}

// Drawing

function drawAnswer(answer) {
  shown = answer;
  if (belief && JSON.stringify(belief.settings) !== JSON.stringify(answer.settings)) belief = null;
  $("verdict").setAttribute("aria-busy", String(!belief));
  $("status").textContent = `${answer.evidence} ${answer.status}`;
  drawReturns();
  drawPicture();
  drawChanges();
}

function drawBelief(answer) {
  belief = answer;
  $("verdict").dataset.level = answer.level;
  $("verdict").setAttribute("aria-busy", "false");
  $("sentence").textContent = answer.verdict;
  $("evidence").textContent = answer.level === "baseline" ? "" : answer.evidence;
  const bars = [];
  if (answer.level !== "baseline") {
    bars.push(chance("given the data", answer.p_safe, about(answer.p_safe)));
    if (answer.p_pessimistic !== null) {
      bars.push(chance("if pessimistic about rarely tried decisions", answer.p_pessimistic, atLeast(answer.p_pessimistic)));
    }
  }
  $("chances").replaceChildren(...bars);
  if (here >= 0 && same(path[here].settings, answer.settings)) path[here].level = answer.level;
  drawReturns();
  drawPicture();
}

function chance(text, p, words) {
  const asks = 1 - settings.delta;
  const bar = svg("svg", { viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" });
  bar.append(
    svg("rect", { class: "bar-track", x: 0, y: 3, width: 100, height: 8 }),
    svg("rect", { class: p >= asks ? "bar-likely" : "bar-doubtful", x: 0, y: 3, width: 100 * p, height: 8 }),
    svg("line", { class: "bar-asked", x1: 100 * asks, x2: 100 * asks, y1: 0, y2: 14, "vector-effect": "non-scaling-stroke" }),
  );
  return el("div", { className: "chance" }, el("span", {}, `No objective worse, ${text}`), el("strong", {}, words), bar);
}

const MOST_ROWS = 8; // largest number of objectives shown in full
const FIRST_ROWS = 6; // number shown if there are more; the others are collapsed
let order = [];

const WORDS = { better: "▲ better", worse: "▼ worse", same: "= unchanged" };

function drawReturns() {
  const rows = shown.objectives.map((row, k) => {
    const about = start.objectives[k];
    const unit = about.unit ? ` ${about.unit}` : "";
    const decimals = precisionOfChange(row.baseline, row.policy);
    const believed = belief && belief.objectives[k];
    const words = row.side === "same" ? WORDS.same : `${WORDS[row.side]} by ${fmt(Math.abs(row.gain), decimals)}${unit}`;
    const range = believed ? between(believed.low, believed.high) + unit : belief ? "nothing changes" : "…";
    const block = el(
      "div",
      { className: "objective", "data-name": row.name },
      el("h3", {}, about.title + (about.lower_is_better ? " (lower is better)" : "")),
      el("p", { className: "believed" }, el("span", { className: "was" }, "believed: "), el("strong", {}, range)),
      strip(row, believed, settings.zeta[row.name]),
      el(
        "div",
        { className: "values" },
        el("span", { className: "was" }, `model, optimistic: baseline ${fmt(row.baseline, decimals)}${unit}`),
        el("span", { className: "now" }, `→ ${fmt(row.policy, decimals)}${unit}`),
        el("span", { className: row.side }, words),
      ),
    );
    const less = believed && believed.model_above ? " Expect less than the model says." : "";
    const worst = believed && believed.p_no_worse_pessimistic !== null ? ` (if pessimistic: ${percent(believed.p_no_worse_pessimistic)})` : "";
    const text = believed ? `No worse with probability ${percent(believed.p_no_worse)}${worst}.${less}` : "";
    block.append(el("p", { className: "hint chances" }, text));
    return block;
  });
  if (rows.length <= MOST_ROWS) {
    $("returns").replaceChildren(...rows);
    return;
  }
  // with many objectives: those that are pursued, then the least certain; the order stays while the posterior is pending
  if (belief && belief.objectives.length) {
    const sure = (k) => Math.min(belief.objectives[k].p_no_worse, belief.objectives[k].p_no_worse_pessimistic ?? 1);
    const margin = (k) => belief.objectives[k].low / Math.max(belief.objectives[k].high - belief.objectives[k].low, 1e-300);
    order = rows.map((_, k) => k).sort((a, b) => sure(a) - sure(b) || margin(a) - margin(b));
  } else if (order.length !== rows.length) order = rows.map((_, k) => k);
  const pursued = order.filter((k) => settings.preference[start.objectives[k].name] > 0);
  const first = [...new Set([...(pursued.length <= 3 ? pursued : []), ...order])];
  const open = $("returns").querySelector("details")?.open;
  const more = el("details", {}, el("summary", {}, `${rows.length - FIRST_ROWS} more objectives${belief && belief.objectives.length ? ", all more certain" : ""}`));
  more.open = Boolean(open);
  more.append(...first.slice(FIRST_ROWS).map((k) => rows[k]));
  $("returns").replaceChildren(...first.slice(0, FIRST_ROWS).map((k) => rows[k]), more);
}

/** A line with the baseline in the middle: what the model says, and where the posterior believes the gain to lie. */
function strip(row, believed, zeta) {
  const key = `strip ${row.name}`;
  const seen = [Math.abs(row.gain), zeta, ...(believed ? [Math.abs(believed.low), Math.abs(believed.high)] : [])];
  reach[key] = Math.max(reach[key] || 0, ...seen, 1e-12);
  const at = (gain) => 150 + (140 * gain) / reach[key];
  const picture = svg("svg", { viewBox: "0 0 300 26", preserveAspectRatio: "none", "aria-hidden": "true" });
  picture.append(
    svg("rect", { class: "strip-worse", x: 0, y: 4, width: 150, height: 18 }),
    svg("rect", { class: "strip-better", x: 150, y: 4, width: 150, height: 18 }),
    svg("line", { class: "strip-zero", x1: 150, x2: 150, y1: 0, y2: 26, "vector-effect": "non-scaling-stroke" }),
  );
  if (zeta > 0) {
    picture.append(svg("line", { class: "strip-asked", x1: at(-zeta), x2: at(-zeta), y1: 0, y2: 26, "vector-effect": "non-scaling-stroke" }));
  }
  if (believed) {
    const line = `M${at(believed.low)} 13H${at(believed.high)}M${at(believed.low)} 7V19M${at(believed.high)} 7V19`;
    picture.append(svg("path", { class: "strip-belief", d: line, fill: "none", "vector-effect": "non-scaling-stroke" }));
  }
  picture.append(svg("ellipse", { class: "strip-model", cx: at(row.gain), cy: 13, rx: 4, ry: 5, "vector-effect": "non-scaling-stroke" }));
  return picture;
}

// The chart: on every axis better is to the right and up

function axis(name) {
  if (name === "") return { title: "Decisions moved, %", sign: 1, plain: true, zero: 0, of: (point) => 100 * point.moved };
  const k = start.objectives.findIndex((objective) => objective.name === name);
  const about = start.objectives[k];
  return {
    k,
    title: about.title + (about.unit ? `, ${about.unit}` : ""),
    sign: about.lower_is_better ? -1 : 1,
    zero: about.baseline,
    of: (point) => point.objectives[k].policy,
  };
}

function ticks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high; n += 1) found.push(n * step);
  return found;
}

function drawPicture() {
  if (!shown) return;
  const width = Math.max($("picture").clientWidth, 260);
  const height = Math.round(Math.min(440, Math.max(290, 0.72 * width)));
  const margin = { left: 62, right: 18, top: 26, bottom: 46 };
  const axes = [axis($("x").value), axis($("y").value)];
  const points = [...path, shown];
  const scales = axes.map((one, i) => {
    const key = `axis ${i} ${i ? $("y").value : $("x").value}`;
    const values = [one.zero, ...points.map(one.of)];
    if (belief && !one.plain && belief.objectives.length) {
      values.push(one.zero + one.sign * belief.objectives[one.k].low, one.zero + one.sign * belief.objectives[one.k].high);
    }
    const old = reach[key] || [Infinity, -Infinity];
    const low = Math.min(old[0], ...values);
    const high = Math.max(old[1], ...values);
    reach[key] = [low, high];
    const room = high > low ? 0.08 * (high - low) : Math.max(Math.abs(low), 1) * 0.1;
    const [from, to] = i ? [height - margin.bottom, margin.top] : [margin.left, width - margin.right];
    const at = (value) => {
      const part = (value - (low - room)) / (high - low + 2 * room);
      return from + (one.sign > 0 ? part : 1 - part) * (to - from);
    };
    return { at, ticks: ticks(low - room, high + room, i ? 6 : Math.max(3, width / 110)) };
  });
  const [x, y] = scales;
  const [zeroX, zeroY] = [x.at(axes[0].zero), y.at(axes[1].zero)];
  const [right, bottom] = [width - margin.right, height - margin.bottom];
  const canvas = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": `${axes[0].title} across, ${axes[1].title} up; better is to the right and up` });
  const left = axes[0].plain ? margin.left : zeroX;
  const low = axes[1].plain ? bottom : zeroY;
  if (!(axes[0].plain && axes[1].plain)) {
    canvas.append(svg("rect", { class: "quadrant", x: left, y: margin.top, width: right - left, height: low - margin.top }));
  }
  for (const value of x.ticks) {
    canvas.append(svg("line", { class: "grid", x1: x.at(value), x2: x.at(value), y1: margin.top, y2: bottom }));
    canvas.append(svg("text", { x: x.at(value), y: bottom + 17, "text-anchor": "middle" }, fmt(value)));
  }
  for (const value of y.ticks) {
    canvas.append(svg("line", { class: "grid", x1: margin.left, x2: right, y1: y.at(value), y2: y.at(value) }));
    canvas.append(svg("text", { x: margin.left - 7, y: y.at(value) + 4, "text-anchor": "end" }, fmt(value)));
  }
  canvas.append(
    svg("line", { class: "cross", x1: zeroX, x2: zeroX, y1: margin.top, y2: bottom }),
    svg("line", { class: "cross", x1: margin.left, x2: right, y1: zeroY, y2: zeroY }),
    svg("text", { class: "axis", x: right, y: height - 9, "text-anchor": "end" }, axes[0].title + (axes[0].plain ? " →" : ": better →")),
    svg("text", { class: "axis", x: 4, y: 15 }, `↑ ${axes[1].plain ? "" : "better: "}${axes[1].title}`),
    svg("path", { class: "baseline", d: `M${zeroX} ${zeroY - 7}l7 7-7 7-7-7Z` }),
  );
  const at = (point) => [x.at(axes[0].of(point)), y.at(axes[1].of(point))];
  if (path.length > 1) canvas.append(svg("polyline", { class: "path", points: path.map((point) => at(point).join(",")).join(" ") }));
  path.forEach((point, i) => {
    const [cx, cy] = at(point);
    const texts = axes.map((one) => `${one.title} ${fmt(one.of(point))}`);
    const dot = svg("g", { class: "visit", role: "button", tabindex: 0, "data-visit": i, "aria-label": `Visit ${i + 1}: ${texts.join("; ")}` });
    dot.append(
      svg("circle", { class: "hit", cx, cy, r: 13 }),
      svg("circle", { class: `dot ${point.level || ""}`, cx, cy, r: 5 }),
      svg("title", {}, `${i + 1}. ${texts.join("\n")}\nε = ${word(point.settings.epsilon)}`),
    );
    canvas.append(dot);
  });
  const [cx, cy] = at(shown);
  if (belief && belief.objectives.length) {
    const parts = axes.map((one) => (one.plain ? null : belief.objectives[one.k]));
    const on = axes.map((one, i) => (gain) => scales[i].at(one.zero + one.sign * gain));
    const middle = parts.map((part, i) => (part ? on[i](part.gain) : [cx, cy][i]));
    let line = "";
    if (parts[0]) {
      const [a, b] = [on[0](parts[0].low), on[0](parts[0].high)];
      line += `M${a} ${middle[1]}H${b}M${a} ${middle[1] - 4}v8M${b} ${middle[1] - 4}v8`;
    }
    if (parts[1]) {
      const [a, b] = [on[1](parts[1].low), on[1](parts[1].high)];
      line += `M${middle[0]} ${a}V${b}M${middle[0] - 4} ${a}h8M${middle[0] - 4} ${b}h8`;
    }
    canvas.append(svg("line", { class: "cross", x1: cx, y1: cy, x2: middle[0], y2: middle[1] }));
    canvas.append(svg("path", { class: "belief", d: line }));
  }
  if (here < 0 || !same(path[here].settings, shown.settings)) {
    canvas.append(svg("circle", { class: `dot ${belief ? belief.level : ""}`, cx, cy, r: 5 }));
  }
  canvas.append(svg("circle", { class: "ring", id: "now", cx, cy, r: 9, "pointer-events": "none" }));
  const focused = document.activeElement?.dataset?.visit;
  $("picture").replaceChildren(canvas);
  if (focused !== undefined) canvas.querySelector(`[data-visit="${focused}"]`)?.focus({ preventScroll: true });
}

function drawChanges() {
  const { changed, states, matching, moved, changes } = shown;
  const found = $("search").value ? ` ${matching} of them match “${$("search").value}”.` : "";
  const most = matching > changes.length ? ` The ${changes.length} with the most decisions moved are listed.` : "";
  $("count").textContent = changed
    ? `${changed} of ${states} states change; ${share(moved)} of the logged decisions would be different.${found}${most}`
    : "Nothing changes.";
  if (!changes.length) {
    $("changes").replaceChildren();
    return;
  }
  const head = el("thead", {}, el("tr", {}, ...["State", "Visits", "Moved", "Less often", "More often"].map((text, i) => el("th", { scope: "col", className: i === 1 || i === 2 ? "number" : "" }, text))));
  const moves = (list) => list.map(([action, before, after]) => el("span", { className: "move" }, `${action}: ${share(before)} → ${share(after)}`));
  const body = changes.map((row) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, row.state),
      el("td", { className: "number", "data-label": "visits" }, String(row.visits)),
      el("td", { className: "number", "data-label": "moved" }, share(row.moved)),
      el("td", { "data-label": "less often" }, ...moves(row.less)),
      el("td", { "data-label": "more often" }, ...moves(row.more)),
    ),
  );
  $("changes").replaceChildren(el("table", {}, head, el("tbody", {}, ...body)));
}

// The path

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

function visit() {
  if (!shown || !same(shown.settings, settings)) return;
  const known = path.findIndex((point) => same(point.settings, shown.settings));
  if (known >= 0) {
    here = known;
  } else {
    if (path.length >= 200) path.shift();
    path.push({ settings: structuredClone(shown.settings), objectives: shown.objectives, moved: shown.moved });
    here = path.length - 1;
  }
  if (belief) path[here].level = belief.level;
  drawPicture();
  try {
    sessionStorage.setItem("bettersafe", JSON.stringify({ sha256: start.data.sha256, settings, path }));
  } catch {
    // without storage, a reload starts over
  }
}

function goBack(i) {
  settings = structuredClone(path[i].settings);
  for (const knob of knobs) knob.show();
  input();
}

// Controls: a slider and a number field; the number is the value

const word = (epsilon) => (epsilon === "inf" ? "∞ (no limit)" : fmt(epsilon));

/**
 * @param place where to put it; @param title its label
 * @param slide {steps, to(position) -> value, from(value) -> position}; @param get, set of the value
 * @param read text -> value or null; @param say value -> text; @param rule what the number may be, in words
 */
function addKnob(place, { id, title, slide, get, set, read, text, say, rule, ends }) {
  const slider = el("input", { type: "range", id, min: 0, max: slide.steps, step: 1 });
  const number = el("input", { type: "text", inputMode: "decimal", id: `${id}-number`, "aria-label": `${title}, as a number`, spellcheck: false });
  const wrong = el("span", { className: "wrong", id: `${id}-wrong`, hidden: true });
  number.setAttribute("aria-describedby", wrong.id);
  const mark = (bad) => {
    number.setAttribute("aria-invalid", String(bad));
    wrong.textContent = bad ? rule : "";
    wrong.hidden = !bad;
  };
  const placeSlider = () => {
    slider.value = slide.from(get());
    slider.setAttribute("aria-valuetext", say(get()));
  };
  slider.addEventListener("input", () => {
    set(slide.to(Number(slider.value)));
    number.value = text(get());
    slider.setAttribute("aria-valuetext", say(get()));
    mark(false);
    input();
  });
  const typed = () => {
    const value = read(number.value.trim());
    mark(value === null);
    if (value === null || value === get()) return;
    set(value);
    placeSlider();
    input();
  };
  number.addEventListener("input", typed);
  number.addEventListener("change", typed);
  number.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault();
  });
  const show = () => {
    placeSlider();
    number.value = text(get());
    mark(false);
  };
  knobs.push({ show });
  const block = el("div", { className: "knob" }, el("label", { for: id }, title), slider, number);
  if (ends) block.append(el("span", { className: "ends" }, ...ends.map((end) => el("span", {}, end))));
  block.append(wrong);
  $(place).append(block);
  show();
}

function readNumber(low, high) {
  return (given) => {
    const value = Number(given.replace(",", ".").replace("−", "-"));
    return given !== "" && Number.isFinite(value) && value >= low && value <= high ? value : null;
  };
}

const linear = (to) => ({
  steps: 100,
  to: (position) => Number(((position * to) / 100).toPrecision(12)),
  from: (value) => Math.round((100 * Math.min(value, to)) / to),
});

// ε on a log scale: 0, then 0.001 … 100 in twentieths of a decade, then no limit
const EPSILON = {
  steps: 102,
  to: (position) => (position === 0 ? 0 : position === 102 ? "inf" : Number((10 ** (-3 + (position - 1) / 20)).toPrecision(3))),
  from: (value) => (value === "inf" ? 102 : value <= 0 ? 0 : Math.min(101, Math.max(1, Math.round(1 + 20 * (Math.log10(value) + 3))))),
};

function readEpsilon(given) {
  return ["∞", "inf", "infinity"].includes(given.toLowerCase()) ? "inf" : readNumber(0, 1e9)(given);
}

// Start

function begin(document_) {
  start = document_;
  settings = structuredClone(start.settings);
  const { data } = start;
  const name = data.path.split(/[\\/]/).pop();
  $("about").textContent =
    `${name}: ${data.episodes.toLocaleString("en")} episodes, ${data.rows.toLocaleString("en")} decisions, ${data.states} states, ${data.actions} actions.` +
    ` Baseline: ${start.baseline_source}. Method: ${start.method.title}, ${start.method.sentence}.` +
    (Object.keys(start.thresholds).length ? " Thresholds are not shown here; a saved run says whether they hold." : "");
  if (!start.method.protects) $("weights").textContent = "How much each objective is pursued. At 0 it is ignored.";
  try {
    const kept = JSON.parse(sessionStorage.getItem("bettersafe"));
    if (kept && kept.sha256 === data.sha256 && same(Object.keys(kept.settings.preference), Object.keys(settings.preference))) {
      settings = kept.settings;
      path = kept.path;
    }
  } catch {
    // no saved state
  }
  const plain = { text: String, say: fmt };
  // with many objectives, those that are not pursued at the start are collapsed
  const folded = start.objectives.length > MOST_ROWS ? start.objectives.filter((one) => !(settings.preference[one.name] > 0)) : [];
  if (folded.length) {
    const rest = el("div", { id: "preference-rest" });
    $("preference").after(el("details", { id: "protected" }, el("summary", {}, `${folded.length} more, at 0 so far`), rest));
  }
  start.objectives.forEach((objective, k) => {
    const unit = objective.unit ? ` (${objective.unit})` : "";
    addKnob(folded.includes(objective) ? "preference-rest" : "preference", {
      id: `preference-${k}`, title: objective.title + (objective.lower_is_better ? ", less of it" : ""), slide: linear(start.preference_to),
      get: () => settings.preference[objective.name], set: (value) => (settings.preference[objective.name] = value),
      read: readNumber(0, 1e9), rule: "A number, 0 or more.", ...plain,
    });
    addKnob("zeta", {
      id: `zeta-${k}`, title: `${objective.title}: accepted loss of return${unit}`, slide: linear(objective.zeta_to),
      get: () => settings.zeta[objective.name], set: (value) => (settings.zeta[objective.name] = value),
      read: readNumber(0, 1e9), rule: "A number, 0 or more.", ...plain,
    });
  });
  addKnob("epsilon", {
    id: "epsilon-slider", title: "Budget ε", slide: EPSILON, get: () => settings.epsilon, set: (value) => (settings.epsilon = value),
    read: readEpsilon, text: (value) => (value === "inf" ? "∞" : String(value)), say: word, rule: "A number, 0 or more, or inf.", ends: ["stay", "no limit"],
  });
  addKnob("delta", {
    id: "delta-slider", title: "Allowed risk δ", slide: { steps: 49, to: (position) => (position + 1) / 100, from: (value) => Math.min(49, Math.max(0, Math.round(100 * value) - 1)) },
    get: () => settings.delta, set: (value) => (settings.delta = value), read: readNumber(1e-12, 1), rule: "A number above 0 and at most 1.", ...plain,
  });
  if (Object.values(settings.zeta).some((loss) => loss > 0)) $("losses").open = true;
  for (const id of ["x", "y"]) {
    $(id).append(...start.objectives.map((objective) => el("option", { value: objective.name }, objective.title)), el("option", { value: "" }, "Decisions moved"));
    $(id).addEventListener("change", drawPicture);
  }
  $("y").selectedIndex = 1;
  $("folder").textContent = start.folder.replace(/[\\/]?$/, "/");
  $("name").value = start.name;
  $("page").hidden = false;
  input();
}

async function keepIt(event) {
  event.preventDefault();
  const button = $("keep").querySelector("button");
  button.disabled = true;
  const held = structuredClone(settings);
  $("kept").replaceChildren(el("p", { className: "hint" }, "Computing the run …"));
  try {
    const made = await call("/api/keep", { settings: held, name: $("name").value.trim() }, 3600);
    const block = el("div", { className: "kept", "data-tone": made.tone }, el("p", {}, "Kept in ", el("strong", { className: "mono", id: "kept-path" }, made.path), ", with a report: ", el("span", { className: "mono", id: "kept-report" }, made.report), "."), el("p", { id: "kept-headline" }, el("strong", {}, made.headline)), el("p", {}, made.detail), ...(made.more ? [el("p", { id: "kept-more" }, made.more)] : []));
    if (made.command) block.append(el("p", { className: "hint" }, "The same run, from the command line:"), command(made.command, "kept-command"));
    else block.append(el("p", { className: "hint" }, "The command line has no option for the weights of several derived objectives: to get the same run with improve, write them into the task file."));
    if (made.next) block.append(el("p", { className: "hint" }, "Next, compute the full posterior and write its certificate:"), command(made.next, "kept-next"));
    $("kept").replaceChildren(block);
    $("name").value = made.name;
  } catch (error) {
    if (error.gone || error.status === 403) lost(error);
    $("kept").replaceChildren(el("div", { className: "kept failed" }, el("p", {}, `Not kept: ${error.gone ? "the explorer has stopped." : error.message}`)));
  }
  button.disabled = false;
}

function command(text, id) {
  const button = el("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text).then(() => (button.textContent = "Copied"), () => getSelection().selectAllChildren($(id)));
  });
  return el("div", { className: "command" }, el("code", { id }, text), button);
}

$("controls").addEventListener("submit", (event) => event.preventDefault());
$("keep").addEventListener("submit", keepIt);
$("reset").addEventListener("click", () => {
  settings = structuredClone(start.settings);
  for (const knob of knobs) knob.show();
  input();
});
$("search").addEventListener("input", () => {
  clearTimeout(looking);
  looking = setTimeout(input, 120);
});
const choose = (event) => {
  const dot = event.target.closest?.("[data-visit]");
  if (!dot || (event.type === "keydown" && event.key !== "Enter" && event.key !== " ")) return;
  event.preventDefault();
  goBack(Number(dot.dataset.visit));
};
$("picture").addEventListener("click", choose);
$("picture").addEventListener("keydown", choose);
new ResizeObserver(() => drawPicture()).observe($("picture"));
again();
