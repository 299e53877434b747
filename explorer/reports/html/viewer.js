/* All panels of a page share one view (from, to, in the displayed unit), cursor, selection and filter. */
class Viewer {
  constructor(root, page, timelines) {
    Object.assign(this, { root, palette: page.palette, unit: page.unit });
    this.full = Math.max(...timelines.map((t) => t.x(t.makespan))) || 1;
    this.from = 0; this.to = this.full;
    this.cursor = null; this.hovered = null; this.selected = null; this.filter = null;
    this.show = { transfers: true, memory: false, critical: true };
    this.shadeBy = timelines.some((t) => t.chunkRank.some((r) => r > 0)) ? "chunk" : "microbatch";
    this.tooltip = root.appendChild(element("div", { id: "tip", hidden: true }));
    this.buildControls();
    this.panels = timelines.map((t, i) => new Panel(this, t, i, timelines.length === 1));
    this.buildDetails();
    this.colour();
    new ResizeObserver(() => this.resize()).observe(root);
    this.resize();
  }
  buildControls() {
    const bar = element("div", { className: "controls", role: "toolbar", ariaLabel: "Timeline controls" });
    const button = (text, label, act) => {
      const b = element("button", { type: "button", textContent: text, title: label, ariaLabel: label });
      b.onclick = act; bar.append(b); return b;
    };
    button("+", "Zoom in", () => this.zoom(0.5));
    button("−", "Zoom out", () => this.zoom(2));
    button("Fit", "Show all", () => this.look(0, this.full));
    for (const [name, label] of [["transfers", "transfers"], ["memory", "memory"], ["critical", "critical path"]]) {
      const box = element("input", { type: "checkbox", checked: this.show[name], id: `show-${name}` });
      box.onchange = () => { this.show[name] = box.checked; this.resize(); };
      bar.append(wrap("label", box, ` ${label}`));
    }
    const shade = element("select", { id: "shade" });
    for (const by of ["chunk", "microbatch"]) shade.append(new Option(by, by, false, by === this.shadeBy));
    shade.onchange = () => { this.shadeBy = shade.value; this.colour(); this.draw(); };
    bar.append(wrap("label", "shade by ", shade));
    const filter = element("input", { id: "filter", size: 8, placeholder: "all", autocomplete: "off" });
    filter.oninput = () => this.setFilter(filter);
    bar.append(wrap("label", "microbatches ", filter));
    const help = element("details", { className: "help" });
    help.append(wrap("summary", "Keys"), element("p", { textContent:
      "On a focused timeline: scroll, + and − zoom; drag, Shift+← and Shift+→ pan; 0 shows all. ← and → go to the " +
      "op before and after on the device, ↑ and ↓ to other devices, [ and ] along the critical path, i to the op's " +
      "input, o to what waits for its output; Esc lets go. Ctrl+scroll zooms without focus; on a touch screen, pinch. " +
      "Microbatches: such as 3 or 0-3,7." }));
    bar.append(help);
    this.root.append(bar, legend(this.palette));
    this.notice = this.root.appendChild(element("p", { className: "notice", id: "notice", role: "status" }));
  }
  buildDetails() {
    this.details = this.root.appendChild(element("section", { id: "details", ariaLabel: "Selected op" }));
    this.details.setAttribute("aria-live", "polite");
    this.describe();
  }
  setFilter(input) {
    const text = input.value.trim();
    const wanted = new Set();
    const good = text.split(",").every((part) => {
      const found = /^\s*(\d{1,7})\s*(?:-\s*(\d{1,7}))?\s*$/.exec(part);
      if (!found) return false;
      for (let m = +found[1]; m <= +(found[2] ?? found[1]); m++) wanted.add(m);
      return true;
    });
    input.setAttribute("aria-invalid", String(text !== "" && !good));
    this.filter = text && good ? wanted : null;
    this.draw();
  }
  /* Colours by kind and shade; the last row of the table is for ops that the filter leaves out. */
  colour() {
    const idle = channels(this.palette.idle), white = [255, 255, 255];
    this.colours = this.palette.kinds.map((kind) =>
      Array.from({ length: SHADES }, (_, s) => mix(channels(kind.colour), white, 0.5 * s / (SHADES - 1))));
    this.faded = this.palette.kinds.map((kind) => mix(channels(kind.colour), idle, 0.85));
    for (const { timeline: t } of this.panels) {
      const by = this.shadeBy === "chunk" ? t.chunkRank : t.microbatch;
      const top = by.reduce((a, b) => Math.max(a, b), 0) || 1;
      t.shade = Uint8Array.from(by, (value) => Math.round((value / top) * (SHADES - 1)));
    }
  }
  colourOf(t, row) {
    const kept = this.filter === null || this.filter.has(t.microbatch[row]);
    return kept ? this.colours[t.kind[row]][t.shade[row]] : this.faded[t.kind[row]];
  }
  format(value) { return `${Number(value.toPrecision(9))}${this.unit && " " + this.unit}`; }
  look(from, to) {
    const least = this.full * 1e-7;
    const width = Math.min(Math.max(to - from, least), this.full);
    from = Math.min(Math.max(from, 0), this.full - width);
    this.from = from; this.to = from + width;
    this.draw();
  }
  zoom(factor, around = (this.from + this.to) / 2) {
    this.look(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }
  pan(share) { const by = (this.to - this.from) * share; this.look(this.from + by, this.to + by); }
  resize() { for (const panel of this.panels) panel.resize(); this.draw(); }
  draw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = null;
      const begun = performance.now();
      const hidden = this.panels.map((panel) => panel.draw()).reduce((a, b) => a + b, 0);
      this.notice.textContent = hidden ? `${hidden} transfers in view: zoom in to see them` : "";
      this.overlay();
      const root = document.documentElement.dataset;
      root.lastDraw = (performance.now() - begun).toFixed(1);
      root.firstDraw ??= performance.now().toFixed(0);
    });
  }
  overlay() { for (const panel of this.panels) panel.drawOver(); }
  hover(panel, row, event) {
    this.hovered = row === null ? null : { panel, row };
    this.tooltip.hidden = row === null;
    if (row !== null) {
      this.tooltip.replaceChildren(...this.lines(panel.timeline, row).map((l) => wrap("div", l)));
      const { innerWidth: w, innerHeight: h } = window, box = this.tooltip.getBoundingClientRect();
      this.tooltip.style.left = `${Math.max(4, Math.min(event.clientX + 14, w - box.width - 8))}px`;
      this.tooltip.style.top = `${event.clientY + 18 + box.height > h ? event.clientY - box.height - 10 : event.clientY + 18}px`;
    }
  }
  select(panel, row) {
    this.selected = row === null ? null : { panel, row };
    if (row !== null) this.reveal(panel.timeline, row);
    this.describe();
    this.overlay();
  }
  /* Move the view as little as it takes to have an op in it. */
  reveal(t, row) {
    const start = t.x(t.start[row]), end = t.x(t.end[row]), width = this.to - this.from;
    if (start < this.from) this.look(start - width * 0.1, start + width * 0.9);
    else if (end > this.to) this.look(end - width * 0.9, end + width * 0.1);
  }
  /* What an op waited for, as [text before its name, row, text after]; a mark at what set its start. */
  waitedFor(t, row) {
    const found = [], before = t.before(row), start = t.start[row];
    const mark = (at) => (at === start ? " ◀ set its start" : "");
    if (before >= 0)
      found.push([`its device, free at ${this.format(t.x(t.free[before]))} after `, before, mark(t.free[before])]);
    const pair = t.part[row] === FIRST ? [row, row + 1] : t.part[row] === SECOND ? [row - 1, row] : [row];
    for (const r of pair) {
      const made = t.source[r];
      if (made < 0) continue;
      const at = t.inputAt(r), whose = r === row ? "its input" : `the input of ${t.name(r)}, which runs with it`;
      const moved = t.device[made] === t.device[r] ? "made" : `arrived from device ${t.device[made]}`;
      found.push([`${whose}, ${moved} at ${this.format(t.x(at))}: `, made, mark(at)]);
    }
    return found;
  }
  waitsForIt(t, row) {
    const users = t.consumers(row), next = t.next(row);
    const found = users.map((r) =>
      ["its output: ", r, ` on device ${t.device[r]}, starts at ${this.format(t.x(t.start[r]))}`]);
    if (next >= 0) found.push(["its device: ", next, `, starts at ${this.format(t.x(t.start[next]))}`]);
    return found;
  }
  lines(t, row) {
    const what = `${t.name(row)}: ${this.palette.kinds[t.kind[row]].name} of microbatch ${t.microbatch[row]}`;
    const lines = [
      `${what}, stage ${t.stage[row]}, chunk ${t.chunk[row]}, device ${t.device[row]}`,
      `start ${this.format(t.x(t.start[row]))}, end ${this.format(t.x(t.end[row]))}` +
        (t.part[row] === WHOLE ? "" : `, overlapped with ${t.name(t.part[row] === FIRST ? row + 1 : row - 1)}`),
    ];
    if (t.arrival[row] > t.end[row])
      lines.push(`its output: sent ${this.format(t.x(t.sent[row]))}, there ${this.format(t.x(t.arrival[row]))}`);
    lines.push(`memory: ${t.amount(t.during[row])} while it runs, ${t.amount(t.held[row])} after`);
    const waited = this.waitedFor(t, row), waits = this.waitsForIt(t, row);
    for (const [before, other, after] of waited) lines.push(`waited for ${before}${t.name(other)}${after}`);
    if (!waited.length) lines.push("waited for nothing");
    for (const [before, other, after] of waits) lines.push(`waiting for ${before}${t.name(other)}${after}`);
    if (t.stepOf[row] >= 0) lines.push("on the critical path");
    return lines;
  }
  describe() {
    this.details.replaceChildren();
    if (!this.selected) {
      this.details.append(wrap("p", "Click an op, or focus a timeline and press an arrow key, to see what it waited for."));
      return;
    }
    const { panel, row } = this.selected, t = panel.timeline;
    const go = (other) => {
      const b = element("button", { type: "button", textContent: t.name(other) });
      b.onclick = () => this.select(panel, other);
      return b;
    };
    const list = (title, entries) => {
      if (!entries.length) return;
      const items = entries.map(([before, other, after]) => wrap("li", before, go(other), after));
      this.details.append(wrap("h4", title), wrap("ul", ...items));
    };
    const [what, when, ...rest] = this.lines(t, row);
    const close = element("button", { type: "button", className: "close", textContent: "✕", ariaLabel: "Let go" });
    close.onclick = () => this.select(panel, null);
    this.details.append(close, wrap("h3", what), wrap("p", this.panels.length > 1 ? `${t.title}. ${when}` : when));
    for (const line of rest) if (/^(its output|memory)/.test(line)) this.details.append(wrap("p", line));
    const nav = element("p", { className: "path" });
    if (t.stepOf[row] >= 0) {
      for (const [direction, label] of [[-1, "◀ before it on the critical path"], [1, "after it on the critical path ▶"]]) {
        const other = this.alongPath(t, row, direction);
        const b = element("button", { type: "button", textContent: label, disabled: other === null });
        b.dataset.path = direction;
        b.onclick = () => this.select(panel, other);
        nav.append(b, " ");
      }
    } else nav.append("Not on the critical path.");
    this.details.append(nav);
    list("It waited for", this.waitedFor(t, row));
    list("Waiting for", this.waitsForIt(t, row));
  }
  /* The op before or after on the critical path; from an op that is not on it, the nearest in time. */
  alongPath(t, row, direction) {
    let step = t.stepOf[row];
    if (step < 0) {
      const steps = [...t.pathRow.keys()].filter((i) => t.pathPart[i] === COMPUTE);
      const near = steps.filter((i) => (direction < 0 ? t.pathStart[i] <= t.start[row] : t.pathStart[i] >= t.start[row]));
      if (!near.length) return null;
      return t.pathRow[direction < 0 ? near[near.length - 1] : near[0]];
    }
    for (step += direction; step >= 0 && step < t.pathRow.length; step += direction)
      if (t.pathPart[step] === COMPUTE && t.pathRow[step] !== row) return t.pathRow[step];
    return null;
  }
}

function legend(palette) {
  const list = element("ul", { className: "legend" });
  const entry = (colour, text, kind = "") => {
    const mark = element("span", { className: `swatch ${kind}` });
    mark.style.background = colour;
    list.append(wrap("li", mark, text));
  };
  for (const kind of palette.kinds) if (kind.used) entry(kind.colour, `${kind.letter} ${kind.name}`);
  entry(palette.idle, "idle");
  entry(palette.wait, "waits for a transfer");
  entry(palette.transfer, "transfer");
  if (palette.sends) entry(`repeating-linear-gradient(135deg, ${palette.wait} 0 2px, ${palette.transfer} 2px 3px)`, "kept by sending");
  if (palette.limited) entry(palette.over, "memory over the limit");
  if (palette.synchronises) entry(palette.sync, "synchronises gradients");
  if (palette.updates) entry(palette.update, "optimiser step");
  entry("#fff", "critical path", "framed");
  return list;
}

async function main() {
  const root = document.getElementById("viewer");
  if (!root) return;
  const page = JSON.parse(document.getElementById("data").textContent);
  const timelines = [];
  for (const { packed, columns, ...header } of page.timelines)
    timelines.push(new Timeline(header, await unpack(packed, columns), page.palette));
  window.timelines = new Viewer(root, page, timelines);
  if (page.focus) window.timelines.panels[0].over.focus({ preventScroll: true });
}
main();
