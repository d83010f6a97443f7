"use strict";
const token = new URLSearchParams(location.search).get("token") || "";
const $ = id => document.getElementById(id);
const MANY_ACTIONS = 4, MANY_VALUES = 12, MANY_FEATURES = 4, LAST_STEPS = 40, NARROW = 7;
let about = null, session = null, view = null, busy = false, place = 0;
const opened = new Set();  // actions that the reader has unfolded

// The server.
async function call(name, asked = {}) {
  const query = new URLSearchParams(session ? { session, ...asked } : asked);
  const answer = await fetch(`/api/${name}?${query}`, { headers: { "x-token": token }, method: "POST" });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error || answer.statusText);
  return found;
}
async function attempt(what) {
  if (busy) return;
  busy = true;
  document.body.classList.add("busy");
  $("error").textContent = "";
  try { await what(); } catch (error) { $("error").textContent = error.message; }
  busy = false;
  document.body.classList.remove("busy");
}
const remember = () => { try { sessionStorage.setItem("baddr-session", session); } catch (_) {} };
const recalled = () => { try { return sessionStorage.getItem("baddr-session"); } catch (_) { return null; } };

async function begin() {
  about = await call("about");
  $("title").textContent = about.title;
  document.title = `${about.title} - baddr explore`;
  makeControls();
  if (about.folder) return beginFolder();
  session = recalled();
  if (session) {
    try { return show(await call("view")); } catch (_) { session = null; }
  }
  await open(0);
}
async function open(seed) {
  session = null;
  const found = await call("open", { seed });
  session = found.session;
  remember();
  show(found);
}
async function beginFolder() {
  if (about.traced) show(await call("trace", { place: 0 }));
  else draw();
  const live = async () => {
    try { curves(await call("curves")); } catch (error) { $("error").textContent = error.message; }
    setTimeout(live, 2000);
  };
  await live();
}
function show(found) { view = found; place = found.place; draw(); picture(); }
const go = (name, asked) => attempt(async () => show(await call(name, asked)));
const act = (a, o) => go("act", o ? { a, o: o.join(",") } : { a });
const at = where => about.folder ? call("trace", { place: where }) : call("move", { by: where - place });
let wanted = null;  // while the slider moves, only its newest place counts
async function goTo(where) {
  wanted = where;
  await attempt(async () => {
    while (wanted !== null && view) { const next = wanted; wanted = null; if (next !== place) show(await at(next)); }
  });
}

// Names.
const many = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
const fixed = (x, digits = 3) => x === null || x === undefined ? "" : Number(x).toFixed(digits);
const percent = p => p > 0 && p < .0005 ? "< 0.1 %" : `${(100 * p).toFixed(1)} %`;
const isNumber = text => /^[+-]?\d+(\.\d+)?$/.test(text);
const valueName = (feature, i) => feature && feature.values[i] !== undefined ? feature.values[i] : String(i);
const named = (feature, i) => {
  const value = valueName(feature, i);
  return feature && (about.observation.length > 1 || isNumber(value)) ? `${feature.name} ${value}` : value;
};
const fullName = o => o.map((x, i) => named(about.observation[i], x)).join(", ");
function observationName(o) {
  if (o.length <= MANY_FEATURES) return fullName(o);
  const count = new Map();
  o.forEach((x, i) => { const v = valueName(about.observation[i], x); count.set(v, (count.get(v) || 0) + 1); });
  return [...count].map(([value, n]) => `${value} × ${n}`).join(", ");
}
function unflat(number) {
  const sizes = about.observation.map(f => f.values.length), found = [];
  for (let i = sizes.length - 1; i >= 0; i--) { found.unshift(number % sizes[i]); number = Math.floor(number / sizes[i]); }
  return found;
}
const actionName = a => about.actions[a] === undefined ? String(a) : about.actions[a];
const quantity = stem => about.model.find(q => q.name === stem);
const entryName = (known, stem, i) => known && known.entries[i] || `${stem.replaceAll("_", " ")} ${i}`;
const trueValue = (known, i) => known && known.truth.length ? known.truth[Math.min(i, known.truth.length - 1)] : null;

// Building blocks.
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    name.startsWith("on") ? made.addEventListener(name.slice(2), value) : made.setAttribute(name, value);
  made.append(...children.filter(x => x !== null && x !== undefined));
  return made;
}
const escaped = text => String(text).replace(/[&<>"']/g, c => `&#${c.charCodeAt(0)};`);
function drawing(width, height, label, parts) {
  const made = el("div");
  made.innerHTML = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(label)}">${parts.join("")}</svg>`;
  return made;
}
function bar(from, to, marks = [], means = []) {
  const made = el("div", { class: "bar" });
  const inner = el("i");
  inner.style.left = `${100 * Math.max(0, from)}%`;
  inner.style.width = `${100 * Math.max(0, Math.min(1, to) - Math.max(0, from))}%`;
  made.append(inner);
  for (const [tag, places] of [["b", marks], ["u", means]])
    for (const x of places) if (x !== null && x !== undefined) {
      const mark = el(tag); mark.style.left = `calc(${100 * Math.min(1, Math.max(0, x))}% - 1px)`; made.append(mark);
    }
  return made;
}
const row = (name, middle, number, cls = "", title = "") =>
  el("div", { class: `row ${cls}`, title: title || `${name}: ${number}` }, el("span", { class: "name" }, name), middle,
    el("span", { class: "number" }, number));
const panel = (id, title, ...children) => el("section", { id }, el("h2", {}, title), ...children);
const note = text => el("p", { class: "muted" }, text);

// The belief over states: columns for numbers, rows for names. `now` is what is believed now, where p is imagined.
function statesPanel(state, truth, id = "states", title = "Belief over states", now = null) {
  const parts = state.map((p, i) => featureBox(p, about.state[i], truth ? truth[i] : null, now && now[i]));
  return panel(id, title, el("div", { class: "features" }, ...parts));
}
function featureBox(p, feature, real, now) {
  const values = p.map((_, j) => valueName(feature, j)), head = el("h3", {}, feature ? feature.name : "state");
  if (p.length > 3 && values.every(isNumber))
    return el("div", { class: p.length > NARROW ? "wide" : "" }, head, columns(p, values, real, now));
  const order = p.map((x, j) => j), name = j => isNumber(values[j]) && feature ? `${feature.name} ${values[j]}` : values[j];
  const most = p.length > MANY_VALUES ? order.sort((x, y) => p[y] - p[x]).slice(0, MANY_VALUES) : order;
  if (real !== null && !most.includes(real)) most.push(real);
  const lines = most.map(j => row(name(j), bar(0, p[j], [], now ? [now[j]] : []), percent(p[j]), real === j ? "true" : ""));
  return el("div", { class: "wide" }, head, ...lines, p.length > most.length ? note(`and ${p.length - most.length} less likely`) : null);
}
function columns(p, values, real, now) {
  const step = Math.min(24, 360 / p.length), width = p.length * step, height = 50, every = Math.ceil(22 / step);
  const parts = p.map((x, j) => {
    const left = j * step, top = height * (1 - x), truth = j === real;
    const said = `${values[j]}: ${percent(x)}${now ? `, now ${percent(now[j])}` : ""}${truth ? ", the truth" : ""}`;
    const label = truth || j % every === 0 ? `<text x="${left + step / 2}" y="${height + 14}" text-anchor="middle"${truth ? ' class="red"' : ""}>${escaped(values[j])}</text>` : "";
    const before = now ? `<line x1="${left + 1}" x2="${left + step - 1}" y1="${height * (1 - now[j]) + 2}" y2="${height * (1 - now[j]) + 2}" stroke="currentColor"/>` : "";
    const frame = truth ? `<rect class="mark" x="${left + 1.5}" y="2.5" width="${step - 3}" height="${height - 1}" stroke-width="1.5"/>` : "";
    return `<rect class="mass" x="${left + 1}" y="${top + 2}" width="${step - 2}" height="${Math.max(height - top, 0)}"/>${before}${frame}`
      + `${label}<rect class="strip" x="${left}" y="0" width="${step}" height="${height + 16}"><title>${escaped(said)}</title></rect>`;
  });
  parts.push(`<line class="axis" x1="0" x2="${p.length * step}" y1="${height + 2}" y2="${height + 2}"/>`);
  const made = drawing(width, height + 18, "probabilities", parts);
  made.firstChild.style.maxWidth = `${width}px`;
  return made;
}

// The belief over models.
function modelPanel(model, id = "models", title = "Belief over models") {
  const parts = [];
  for (const [name, value] of Object.entries(model)) {
    if (name.endsWith("_std") || name.endsWith("_distribution")) continue;
    const list = [].concat(value), stem = name.replace(/_(mean|std|histogram)$/, ""), known = quantity(stem);
    const whole = model[`${stem}_distribution`], own = model[`${stem}_histogram`];
    if (name.endsWith("_histogram")) {
      if (!(`${stem}_mean` in model)) parts.push(el("h3", {}, known ? known.title : stem.replaceAll("_", " ")), histogram(list, trueValue(known, 0)));
      continue;
    }
    parts.push(el("h3", {}, known ? known.title : stem.replaceAll("_", " ")));
    const most = Math.max(1, ...list, ...(known ? known.truth : [])), spread = model[`${stem}_std`];
    list.forEach((x, i) => {
      const sd = spread ? [].concat(spread)[i] || 0 : 0, real = trueValue(known, i);
      const mass = own && list.length === 1 ? own : whole && name.endsWith("_mean") && whole.mass[i];
      parts.push(modelLine(list.length === 1 && !(known && known.entries.length) ? "mean" : entryName(known, stem, i), x, sd, real, most, mass));
      if (mass) parts.push(histogram(mass, real, whole ? whole.top : 1, x));
    });
    if (own && list.length > 1) parts.push(histogram(own, trueValue(known, 0)));
  }
  if (!parts.length) parts.push(note("This domain says nothing about its models in words or numbers."));
  else parts.push(el("p", { class: "muted" }, el("span", { class: "red" }, "Red: the truth"), ", which the agent does not know. The other line is the mean."));
  return panel(id, title, ...parts);
}
function modelLine(name, mean, sd, real, most, drawn) {
  const said = `${fixed(mean, 2)}${sd ? ` ± ${fixed(sd, 2)}` : ""}`, truth = real === null ? null : `truth ${fixed(real, 2)}`;
  const number = el("span", { class: "number" }, said, truth ? el("span", { class: "red" }, `  ${truth}`) : null);
  const middle = drawn ? el("span") : bar((mean - sd) / most, (mean + sd) / most, [real === null ? null : real / most], [mean / most]);
  const title = `${name}: mean ${fixed(mean)}${sd ? `, standard deviation ${fixed(sd)}` : ""}${truth ? `, ${truth}` : ""}`;
  return el("div", { class: "row", title }, el("span", { class: "name" }, name), middle, number);
}
function histogram(mass, real, top = 1, mean = null) {
  const width = 360, height = 50, most = Math.max(...mass, 1e-9), step = width / mass.length;
  const parts = mass.map((p, i) => {
    const from = i * top / mass.length, to = (i + 1) * top / mass.length, tall = (height - 8) * p / most;
    return `<rect class="mass" x="${i * step + .5}" y="${height - tall}" width="${step - 1}" height="${tall}"/>`
      + `<rect class="strip" x="${i * step}" y="0" width="${step}" height="${height}"><title>${fixed(from, 2)} to ${fixed(to, 2)}: ${percent(p)}</title></rect>`;
  });
  const upright = (x, kind) => `<line x1="${x / top * width}" x2="${x / top * width}" y1="0" y2="${height}" ${kind} stroke-width="2" pointer-events="none"/>`;
  if (mean !== null) parts.push(upright(mean, 'stroke="currentColor" stroke-dasharray="3 2"'));
  if (real !== null) parts.push(upright(real, 'class="mark"'));
  parts.push(`<line class="axis" x1="0" x2="${width}" y1="${height}" y2="${height}"/>`);
  for (const [x, anchor] of [[0, "start"], [.5, "middle"], [1, "end"]])
    parts.push(`<text x="${x * width}" y="${height + 12}" text-anchor="${anchor}">${+(x * top).toFixed(2)}</text>`);
  return drawing(width, height + 16, "histogram", parts);
}
function particlesPanel() {
  const n = view.particles, lines = [], of = n ? ` of ${n}` : "";
  lines.push(row("effective", bar(0, n ? view.effective / n : 0), fixed(view.effective, 0), "",
    `1 / the sum of squared weights: as if ${fixed(view.effective, 1)}${of} particles of equal weight`));
  if (view.ancestors !== null) lines.push(row("ancestors", bar(0, n ? view.ancestors / n : 0), String(view.ancestors), "",
    `${view.ancestors}${of} particles of the last step have descendants now`));
  return panel("particles", n ? `Particles: ${n}` : "Particles", ...lines);
}

// The actions: what each is worth, what would be seen, and buttons to do it.
function bestAction() {
  const led = view.led_here;
  return led && led.best !== undefined ? led.best : about.folder && led ? led.action : null;
}
function planPanel() {
  const plan = view.plan, title = about.folder ? "Values of the actions, before this step" : "Actions: click one to act";
  if (!plan) return panel("plan", title, note("The episode is over."),
    about.folder ? null : el("button", { id: "next", onclick: () => go("step") }, "next episode"));
  const highs = plan.upper || plan.Q, low = Math.min(...plan.Q.filter(Number.isFinite)), high = Math.max(...highs.filter(Number.isFinite));
  const where = x => high > low ? (x - low) / (high - low) : .5, best = bestAction();
  const lines = plan.Q.map((_, a) => actionLine(a, a === best, where));
  const cost = plan.nodes === null ? "" : `The search: ${plan.nodes} nodes, ${plan.steps} steps of the model. `;
  return panel("plan", title, ...lines, note(`${cost}★: the agent's choice. Bars${plan.upper ? " (from the lower to the upper bound)" : ""} lie between ${fixed(low, 2)} and ${fixed(high, 2)}.`));
}
function actionLine(a, best, where) {
  const plan = view.plan, q = plan.Q[a], top = plan.upper ? plan.upper[a] : q, ahead = view.outlook && view.outlook[a];
  const name = actionName(a) + (best ? " ★" : ""), said = plan.upper ? `${fixed(q, 2)} to ${fixed(top, 2)}` : fixed(q, 2);
  const effort = view.tree ? many(view.tree.below[a], "expansion") : many(plan.visits[a], "visit");
  const head = about.folder ? el("span", { class: "name" }, name)
    : el("button", { id: `act-${a}`, class: best ? "best" : "", title: `do this${a < 9 ? ` (key ${a + 1})` : ""}`, onclick: () => act(a) }, name);
  const value = el("div", { class: "row", title: `${actionName(a)}: worth ${said}; ${effort}` }, head,
    bar(where(q) - .008, where(top) + .008), el("span", { class: "number" }, said));
  if (!ahead) return el("div", { class: "action" }, value, el("div", { class: "muted" }, effort));
  const ends = ahead.ends > .0005 ? `, ends with ${percent(ahead.ends)}` : "";
  const below = el("details", {}, el("summary", { class: "muted" }, `reward ${fixed(ahead.reward, 2)}${ends}; ${effort}`),
    ...ahead.seen.map(x => seenLine(a, x)), ahead.others > .0005 ? note(`others: ${percent(ahead.others)}`) : null);
  below.open = opened.has(a) || plan.Q.length <= MANY_ACTIONS || best;
  below.firstChild.addEventListener("click", () => below.open ? opened.delete(a) : opened.add(a));
  return el("div", { class: "action" }, value, below);
}
function seenLine(a, { o, p }) {
  const fill = el("i"), name = observationName(o);
  fill.style.width = `${100 * p}%`;
  const take = el("button", { "data-act": `${a},${o}`, title: `${actionName(a)}, and suppose that this is seen: ${fullName(o)} (${percent(p)})`, onclick: () => act(a, o) },
    fill, el("span", {}, name), el("span", { class: "number" }, percent(p)));
  const look = el("button", { class: "small", "data-after": `${a},${o}`, title: "what would be believed then", onclick: () => attempt(() => lookAfter(a, o)) }, "look");
  return el("div", { class: "seen" }, take, look);
}
async function lookAfter(a, o) {
  const found = await call("after", { a, o: o.join(",") }), title = `${actionName(a)}, then ${observationName(o)}`;
  const close = el("button", { class: "small", onclick: () => $("after").replaceWith(afterPanel()) }, "close");
  const shown = found.impossible ? [note("No particle can explain that.")]
    : [statesPanel(found.state, null, "after-states", "States (black: now)", view.state), modelPanel(found.model, "after-models", "Models")];
  $("after").replaceWith(panel("after", `What would be believed: ${title}`, close, ...shown));
  $("after").scrollIntoView({ block: "nearest" });
}
const afterPanel = () => el("div", { id: "after" });

// The tree, node by node.
async function unfold(details, number) {
  if (details.dataset.loaded) return;
  details.dataset.loaded = "yes";
  for (const action of await call("node", { node: number })) {
    const inner = el("details", {}, el("summary", {}, `${actionName(action.action)}: ${fixed(action.lower, 2)} to ${fixed(action.upper, 2)}`));
    for (const child of action.children) inner.append(childNode(child));
    if (!action.children.length) inner.append(note("The episode ends."));
    details.append(inner);
  }
}
function childNode(child) {
  const seen = child.observation === null ? "one of the likeliest observations" : observationName(unflat(child.observation));
  const states = child.state.map((p, i) => {
    const j = p.indexOf(Math.max(...p));
    return `${about.state[i] ? about.state[i].name : i} ${valueName(about.state[i], j)} (${percent(p[j])})`;
  });
  const line = `${seen} (${percent(child.p)}): ${fixed(child.lower, 2)} to ${fixed(child.upper, 2)}; ${states.slice(0, 4).join(", ")}`;
  if (child.leaf) return el("div", { class: "muted leaf", title: states.join(", ") }, `${line}; not expanded`);
  const below = el("details", {}, el("summary", { title: states.join(", ") }, line));
  below.addEventListener("toggle", () => attempt(() => unfold(below, child.node)));
  return below;
}
function treePanel() {
  if (!view.tree) return panel("tree", "Tree of beliefs", note(view.over ? "The episode is over." : "This planner keeps no tree to look at."));
  const t = view.tree, root = el("details", { id: "root" },
    el("summary", {}, `now: worth ${fixed(Math.max(...view.plan.Q), 2)} to ${fixed(Math.max(...view.plan.upper), 2)}, ${t.expansions} expansions`));
  root.addEventListener("toggle", () => attempt(() => unfold(root, 0)));
  return panel("tree", "Tree of beliefs", note("Actions with their bounds, then observations with their probabilities, bounds, and the likeliest state after them."), root);
}

// What happened, and the way through it.
function historyPanel() {
  const lines = view.history.slice(-LAST_STEPS).reverse().map(h => el("tr",
    { class: h.place === place ? "now" : "", title: "go there", onclick: () => goTo(h.place) },
    el("td", {}, `${h.episode + 1}.${h.t}`),
    el("td", {}, h.action === undefined ? "a new episode" : actionName(h.action)),
    el("td", h.observation ? { title: fullName(h.observation) } : {}, h.observation ? observationName(h.observation) + (h.imagined ? " (supposed)" : "") : ""),
    el("td", { class: "number" }, h.reward === undefined ? "" : +fixed(h.reward, 2))));
  const heads = ["episode.step", "action", "observation"].map(x => el("th", {}, x));
  return panel("history", "What happened: click to go there", lines.length
    ? el("table", {}, el("thead", {}, el("tr", {}, ...heads, el("th", { class: "number" }, "reward"))), el("tbody", {}, ...lines))
    : note("Nothing yet."));
}
function episodeBounds() {
  const first = Math.max(...view.starts.filter(x => x <= place)), later = view.starts.filter(x => x > place);
  return { first, last: later.length ? later[0] - 1 : view.places - 1, next: later.length ? later[0] : null,
    previous: first > 0 ? Math.max(...view.starts.filter(x => x < first)) : null };
}
function makeControls() {
  const button = (id, text, title, what) => el("button", { id, title, onclick: what }, text);
  const slider = el("input", { id: "slider", type: "range", title: "the steps of this episode", "aria-label": "step of the episode" });
  slider.addEventListener("input", () => goTo(Number(slider.value)));
  const walk = [
    button("previous", "|◂", "the episode before (p)", () => goTo(episodeBounds().previous)),
    button("back", "◂ back", "a step back (left arrow)", () => goTo(place - 1)), slider,
    button("forward", "forward ▸", "a step forwards (right arrow)", () => goTo(place + 1)),
    button("following", "▸|", "the episode after (n)", () => goTo(episodeBounds().next))];
  const live = [button("step", "agent's step", "let the agent act (space)", () => go("step")),
    button("new", "new session", "another world and a new belief", () => attempt(() => open(Math.floor(Math.random() * 1e6))))];
  if (!about.folder || about.traced) $("controls").replaceChildren(...walk, ...(about.folder ? [] : live));
  $("keys").textContent = about.folder ? (about.traced ? "Keys: ← → go back and forth, p and n to the episode before and after." : "")
    : "Keys: ← → go back and forth, p and n to the episode before and after, space lets the agent act, 1 to 9 do an action. Acting from an earlier moment drops the later ones.";
}
function updateControls() {
  const { first, last, next, previous } = episodeBounds(), slider = $("slider");
  Object.assign(slider, { min: first, max: last, disabled: last === first });
  slider.value = place;
  $("back").disabled = place === 0; $("forward").disabled = place >= view.places - 1;
  $("previous").disabled = previous === null; $("following").disabled = next === null;
  if ($("step")) $("step").textContent = view.over ? "next episode" : "agent's step";
}
document.addEventListener("keydown", event => {
  if (!view || event.ctrlKey || event.altKey || event.metaKey || event.target.tagName === "INPUT") return;
  if (event.key === " " && ["BUTTON", "SUMMARY"].includes(event.target.tagName)) return;  // presses what has the focus
  const id = { ArrowLeft: "back", ArrowRight: "forward", " ": "step", p: "previous", n: "following" }[event.key]
    || (/^[1-9]$/.test(event.key) ? `act-${event.key - 1}` : null);
  const found = id && $(id);
  if (found && !found.disabled) { event.preventDefault(); found.click(); }
});

// All of it.
function draw() {
  if (!view) { $("standing").textContent = "no trace: run with --trace 0 to step through a run"; return; }
  $("standing").textContent = `episode ${view.episode + 1}, step ${view.t}${view.over ? ", over" : ""}; return ${fixed(view.total, 2)}`;
  updateControls();
  const focus = document.activeElement && document.activeElement.matches(":focus-visible") ? document.activeElement.id : "";
  const left = el("div", {}, $("picture") || el("section", { id: "picture", hidden: "" }), statesPanel(view.state, view.true_state));
  const middle = el("div", {}, planPanel(), about.folder ? historyPanel() : null);
  const right = el("div", {}, modelPanel(view.model), particlesPanel(), afterPanel());
  $("main").replaceChildren(...[$("curves"), left, middle, right, ...(about.folder ? [] : [treePanel(), historyPanel()])].filter(Boolean));
  if (focus && $(focus)) $(focus).focus();
  document.body.dataset.place = view.place;
}
async function picture() {
  const asked = place;
  try {
    const { png } = await call("picture", { place });
    const holder = $("picture");
    if (!holder || asked !== place) return;
    holder.hidden = !png;
    if (png) holder.replaceChildren(el("h2", {}, "The world (blue: what is believed)"), el("img", { alt: "the world", src: `data:image/png;base64,${png}` }));
  } catch (_) { /* the page is whole without it */ }
}

// Learning curves of a folder, while they grow: a chart for each quantity, a line for each of its entries.
function colours(n) {
  if (n <= 6) return ["var(--blue)", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#777"].slice(0, n);
  return Array.from({ length: n }, (_, i) => `hsl(${Math.round(220 - 200 * i / (n - 1))} 70% 45%)`);
}
function chartsOf(found) {
  const charts = new Map();
  for (const name of Object.keys(found.curves)) {
    if (/_histogram_|_std(_|$)/.test(name)) continue;
    const [, stem, i] = name.match(/^(.*?)_mean_(\d+)$/) || [null, name, null], known = quantity(stem);
    if (!charts.has(stem)) charts.set(stem, { title: known ? known.title : stem.replaceAll("_", " "), lines: [] });
    const entry = i === null ? "" : entryName(known, stem, Number(i));
    charts.get(stem).lines.push({ name: entry, curve: found.curves[name], truth: i === null ? null : trueValue(known, Number(i)) });
  }
  return [...charts.values()];
}
function curves(found) {
  const smooth = found.window > 1 ? `; each point is the mean of ${found.window} episodes, bands are 95 % intervals` : "";
  const made = el("section", { id: "curves", "data-rows": found.rows }, el("h2", {}, "Learning curves"),
    note(`${found.folder}: ${found.status}, ${found.rows} of ${found.runs * found.episodes} episodes${smooth}`));
  made.append(el("div", { class: "charts" }, ...chartsOf(found).slice(0, 8).map(chart => chartBox(chart, found.episodes))));
  const old = $("curves");
  old ? old.replaceWith(made) : $("main").prepend(made);
}
function chartBox({ title, lines }, episodes) {
  const shades = colours(lines.length), label = (line, i) => {
    const dot = el("i"); dot.style.background = shades[i];
    return el("span", {}, dot, line.name, line.truth === null ? "" : ` (truth ${fixed(line.truth, 2)})`);
  };
  const legend = lines.length > 1 ? el("div", { class: "legend" }, ...lines.map(label)) : null;
  return el("div", {}, el("h3", {}, title), chart(lines, shades, episodes), legend);
}
function chart(lines, shades, episodes) {
  const width = 400, height = 170, left = 46, bottom = 20;
  const all = lines.flatMap(l => [...l.curve.y, ...(lines.length > 3 ? [] : [...l.curve.low, ...l.curve.high]), l.truth]).filter(v => v !== null && v !== undefined);
  if (!all.length) return note("Nothing yet.");
  let low = Math.min(...all), high = Math.max(...all);
  if (low === high) { low -= 1; high += 1; }
  const X = x => left + (width - left - 8) * (x - 1) / Math.max(episodes - 1, 1), Y = y => 8 + (height - bottom - 14) * (high - y) / (high - low);
  const parts = [low, (low + high) / 2, high].map(v =>
    `<line class="axis" x1="${left}" x2="${width - 8}" y1="${Y(v)}" y2="${Y(v)}"/><text x="${left - 5}" y="${Y(v) + 4}" text-anchor="end">${+v.toPrecision(3)}</text>`);
  lines.forEach((l, i) => parts.push(...curveParts(l, shades[i], X, Y, lines.length <= 3, lines.length === 1)));
  parts.push(...strips(lines, X, height));
  parts.push(`<text x="${left}" y="${height - 4}">episode 1</text><text x="${width - 8}" y="${height - 4}" text-anchor="end">episode ${episodes}</text>`);
  return drawing(width, height, "learning curve", parts);
}
function curveParts({ curve, truth }, colour, X, Y, bands, alone) {
  const known = curve.x.map((x, i) => [x, curve.y[i], curve.low[i], curve.high[i]]).filter(([, y]) => y !== null);
  const whole = known.filter(([, , low, high]) => low !== null && high !== null), parts = [];
  if (bands && whole.length > 1) parts.push(`<polygon fill="${colour}" opacity=".18" points="${whole.map(([x, , a]) => `${X(x)},${Y(a)}`).join(" ")} ${[...whole].reverse().map(([x, , , b]) => `${X(x)},${Y(b)}`).join(" ")}"/>`);
  parts.push(known.length > 1 ? `<polyline fill="none" stroke="${colour}" stroke-width="2" points="${known.map(([x, y]) => `${X(x)},${Y(y)}`).join(" ")}"/>`
    : known.map(([x, y]) => `<circle cx="${X(x)}" cy="${Y(y)}" r="3" fill="${colour}"/>`).join(""));
  if (truth !== null && truth !== undefined) {
    const red = alone ? "var(--red)" : colour;
    parts.push(`<line x1="46" x2="392" y1="${Y(truth)}" y2="${Y(truth)}" stroke="${red}" stroke-dasharray="5 3"/>`);
    if (alone) parts.push(`<text class="red" x="392" y="${Y(truth) - 3}" text-anchor="end">truth ${fixed(truth, 2)}</text>`);
  }
  return parts;
}
function strips(lines, X, height) {
  const xs = lines[0].curve.x, step = xs.length > 1 ? X(xs[1]) - X(xs[0]) : 20;
  const said = (l, i) => l.curve.y[i] === null ? "" : `${l.name ? `${l.name}: ` : ""}${fixed(l.curve.y[i], 2)}${l.curve.low[i] === null ? "" : ` (${fixed(l.curve.low[i], 2)} to ${fixed(l.curve.high[i], 2)})`}`;
  return xs.map((x, i) => `<rect class="strip" x="${X(x) - step / 2}" y="0" width="${step}" height="${height - 20}"><title>${escaped(`episode ${+Number(x).toFixed(1)}\n${lines.map(l => said(l, i)).filter(Boolean).join("\n")}`)}</title></rect>`);
}
attempt(begin);
