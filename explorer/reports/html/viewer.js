"use strict";
/* Draws timelines on canvases: one time axis for all, zoom and pan, hover, selection, critical path, filter.
   Data: one JSON block a page; each timeline's columns are typed arrays behind each other, gzipped, in base64. */

const GUTTER = 34, TOP = 6, AXIS = 22, LABEL_ROW = 12, WIDE = 2.5, FRAMED = 8, MOST_TRANSFERS = 3000, SHADES = 16;
const TYPES = { u1: Uint8Array, i4: Int32Array, f8: Float64Array };
const WHOLE = 0, FIRST = 1, SECOND = 2, W = 2;
const COMPUTE = 0, SYNCHRONISATION = 3;

async function unpack(packed, columns) {
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const found = {};
  let at = 0;
  for (const [name, type, length] of columns) {
    found[name] = new TYPES[type](buffer, at, length);
    at += Math.ceil((length * TYPES[type].BYTES_PER_ELEMENT) / 8) * 8;
  }
  return found;
}

/* A timeline: its columns, what follows from them, and where its parts stand on its canvas. */
class Timeline {
  constructor(header, columns, palette) {
    Object.assign(this, header, columns);
    this.palette = palette;
    this.devices = this.offsets.length - 1;
    this.rows = this.start.length;
    this.device = new Int32Array(this.rows);
    for (let d = 0; d < this.devices; d++) this.device.fill(d, this.offsets[d], this.offsets[d + 1]);
    this.heads = new Int32Array(this.rows).fill(-1); // a list of consumers for each row
    this.after = new Int32Array(this.rows).fill(-1);
    for (let r = this.rows - 1; r >= 0; r--) {
      const made = this.source[r];
      if (made >= 0) { this.after[r] = this.heads[made]; this.heads[made] = r; }
    }
    this.stepOf = new Int32Array(this.rows).fill(-1);
    this.pathRow.forEach((row, i) => { if (this.pathPart[i] === COMPUTE) this.stepOf[row] = i; });
    for (const kind of ["wait", "send", "sync"]) this[kind + "Of"] = ranges(this[kind + "Device"], this.devices);
    const top = Math.max(0, ...this.limit, ...this.base);
    this.digits = String(this.microbatch.reduce((a, b) => Math.max(a, b), 0)).length;
    this.memoryTop = this.during.reduce((a, b) => Math.max(a, b), top) || 1;
  }
  x(ticks) { return ticks * this.perTick; }
  /* A level of memory as people read it. */
  amount(level) {
    if (!this.inBytes) return `${Number(level.toPrecision(6))} activations`;
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    const power = Math.min(Math.floor(Math.log2(Math.max(level, 1)) / 10), 4);
    return `${Number((level / 1024 ** power).toPrecision(4))} ${units[power]}`;
  }
  name(row) { return `${this.stage[row]}${this.palette.kinds[this.kind[row]].letter}${this.microbatch[row]}`; }
  consumers(row) {
    const found = [];
    for (let r = this.heads[row]; r >= 0; r = this.after[r]) found.push(r);
    return found;
  }
  /* The row before the occupancy that a row is part of, on the same device; -1 for none. */
  before(row) {
    const head = this.part[row] === SECOND ? row - 1 : row;
    return head > this.offsets[this.device[row]] ? head - 1 : -1;
  }
  next(row) {
    const next = this.part[row] === FIRST ? row + 2 : row + 1;
    return next < this.offsets[this.device[row] + 1] ? next : -1;
  }
  /* When a row's input was there, in ticks. */
  inputAt(row) {
    const made = this.source[row];
    const remote = this.kind[row] !== W && this.arrival[made] >= 0;
    return remote ? Math.max(this.arrival[made], this.end[made]) : this.end[made];
  }
  /* The first row of a device that ends after a time. */
  firstAfter(device, ticks) {
    let low = this.offsets[device], high = this.offsets[device + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] > ticks) high = middle; else low = middle + 1;
    }
    return low;
  }
}

function ranges(device, devices) {
  const found = new Int32Array(devices + 1);
  device.forEach((d) => { found[d + 1]++; });
  for (let d = 0; d < devices; d++) found[d + 1] += found[d];
  return found;
}

function channels(colour) { return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)); }
function mix(a, b, share) { return a.map((c, i) => Math.round(c + (b[i] - c) * share)); }
function css([r, g, b]) { return `rgb(${r},${g},${b})`; }

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

/* One timeline's canvases, and what a person does on them. */
class Panel {
  constructor(viewer, timeline, index, alone) {
    this.viewer = viewer; this.timeline = timeline;
    const box = element("section", { className: "panel" });
    this.canvas = element("canvas", { className: "base" });
    this.over = element("canvas", { className: "over", tabIndex: 0, id: `timeline-${index}` });
    this.over.setAttribute("role", "application");
    this.over.setAttribute("aria-label", `${timeline.title}. ${timeline.caption} Arrow keys go from op to op.`);
    this.stack = wrap("div", this.canvas, this.over);
    this.stack.className = "stack";
    if (!alone) box.append(wrap("h3", timeline.title));
    box.append(this.stack, element("p", { className: "caption", textContent: timeline.caption }));
    viewer.root.append(box);
    this.pointers = new Map();
    this.sliver = document.createElement("canvas");
    this.listen();
  }
  get context() { return this.canvas.getContext("2d"); }
  resize() {
    const t = this.timeline;
    this.width = Math.max(this.stack.clientWidth, 160);
    this.row = Math.min(40, Math.max(t.devices > 200 ? 3 : 7, Math.floor(420 / t.devices)));
    this.strip = this.viewer.show.memory ? Math.max(10, Math.round(this.row * 0.8)) : 0;
    this.pitch = this.row + this.strip;
    this.height = TOP + this.pitch * t.devices + AXIS;
    this.ratio = Math.min(window.devicePixelRatio || 1, 16000 / this.height, 16000 / this.width);
    for (const canvas of [this.canvas, this.over]) {
      canvas.width = Math.round(this.width * this.ratio); canvas.height = Math.round(this.height * this.ratio);
      canvas.style.height = `${this.height}px`;
    }
    this.stack.style.height = `${this.height}px`;
  }
  get scale() { return (this.width - GUTTER) / (this.viewer.to - this.viewer.from); }
  px(value) { return GUTTER + (value - this.viewer.from) * this.scale; }
  time(px) { return this.viewer.from + (px - GUTTER) / this.scale; }
  top(device) { return TOP + device * this.pitch; }
  /* The top and height of an op within its row: synchronisation has a lane of its own, a pair shares a row. */
  lane(row) {
    const t = this.timeline, gap = this.row > 8 ? 1 : 0;
    const tall = (t.syncStart.length ? 0.76 : 1) * this.row - gap;
    const y = this.top(t.device[row]);
    if (t.part[row] === WHOLE) return [y, tall];
    return [t.part[row] === FIRST ? y : y + tall / 2, tall / 2];
  }
  draw() {
    const c = this.context, t = this.timeline, v = this.viewer;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.clearRect(0, 0, this.width, this.height);
    c.save();
    c.beginPath(); c.rect(GUTTER, 0, this.width - GUTTER, this.height); c.clip();
    c.fillStyle = v.palette.idle;
    const end = Math.min(this.px(t.x(t.makespan)), this.width);
    for (let d = 0; d < t.devices; d++) c.fillRect(GUTTER, this.top(d), end - GUTTER, this.row - (this.row > 4 ? 1 : 0));
    this.spans("wait", v.palette.wait, 0, 1);
    this.spans("send", this.hatch(), 0, 1);
    this.ops();
    this.spans("sync", v.palette.sync, 0.78, 0.2);
    if (this.strip) this.memory();
    if (v.show.critical) this.critical();
    const hidden = v.show.transfers ? this.transfers() : 0;
    c.restore();
    this.axis();
    return hidden;
  }
  /* Slanted lines, so that a device kept by sending is not taken for one that computes. */
  hatch() {
    const tile = element("canvas", { width: 6, height: 6 }), c = tile.getContext("2d");
    c.fillStyle = this.viewer.palette.wait; c.fillRect(0, 0, 6, 6);
    c.strokeStyle = this.viewer.palette.transfer; c.lineWidth = 1.2;
    for (const by of [-6, 0, 6]) line(c, [by, 6], [by + 6, 0]);
    return this.context.createPattern(tile, "repeat");
  }
  spans(kind, colour, from, share) {
    const t = this.timeline, c = this.context, of = t[kind + "Of"], start = t[kind + "Start"], end = t[kind + "End"];
    c.fillStyle = colour;
    for (let d = 0; d < t.devices; d++)
      for (let i = of[d]; i < of[d + 1]; i++) {
        const x = this.px(t.x(start[i])), wide = this.px(t.x(end[i])) - x;
        if (wide > 0.6 && x < this.width && x + wide > GUTTER)
          c.fillRect(x, this.top(d) + from * this.row, wide, share * this.row - (this.row > 4 ? 1 : 0));
      }
  }
  /* Wide ops as boxes with labels; narrow ones mix their colours in the columns of pixels that they share. */
  ops() {
    const c = this.context, t = this.timeline, v = this.viewer;
    const columns = Math.ceil(this.width - GUTTER), idle = channels(v.palette.idle);
    const mixed = new Float32Array(columns * 4);
    this.sliver.width = columns; this.sliver.height = t.devices;
    const image = this.sliver.getContext("2d").createImageData(columns, t.devices);
    const boxes = [], low = v.from / t.perTick, high = v.to / t.perTick;
    for (let d = 0; d < t.devices; d++) {
      mixed.fill(0);
      for (let r = t.firstAfter(d, low); r < t.offsets[d + 1] && t.start[r] < high; r++) {
        const x0 = this.px(t.x(t.start[r])), x1 = this.px(t.x(t.end[r]));
        if (x1 - x0 >= WIDE) boxes.push(r);
        else this.blend(mixed, columns, x0 - GUTTER, x1 - GUTTER, v.colourOf(t, r), t.part[r] === WHOLE ? 1 : 0.5);
      }
      for (let i = 0; i < columns; i++) {
        const share = Math.min(mixed[4 * i + 3], 1), at = 4 * (d * columns + i);
        if (!share) continue;
        const full = mixed[4 * i + 3];
        for (let k = 0; k < 3; k++) image.data[at + k] = (mixed[4 * i + k] / full) * share + idle[k] * (1 - share);
        image.data[at + 3] = 255;
      }
    }
    this.sliver.getContext("2d").putImageData(image, 0, 0);
    c.imageSmoothingEnabled = false;
    const tall = (t.syncStart.length ? 0.76 : 1) * this.row - (this.row > 4 ? 1 : 0);
    for (let d = 0; d < t.devices; d++) c.drawImage(this.sliver, 0, d, columns, 1, GUTTER, this.top(d), columns, tall);
    this.boxes(boxes);
  }
  blend(mixed, columns, x0, x1, colour, weight) {
    for (let i = Math.max(0, Math.floor(x0)); i < Math.min(columns, x1); i++) {
      const part = weight * (Math.min(x1, i + 1) - Math.max(x0, i));
      for (let k = 0; k < 3; k++) mixed[4 * i + k] += colour[k] * part;
      mixed[4 * i + 3] += part;
    }
  }
  boxes(rows) {
    const c = this.context, t = this.timeline, v = this.viewer;
    c.textAlign = "center"; c.textBaseline = "middle";
    for (const r of rows) {
      const x0 = this.px(t.x(t.start[r])), x1 = this.px(t.x(t.end[r])), [y, tall] = this.lane(r);
      c.fillStyle = css(v.colourOf(t, r));
      c.fillRect(x0, y, x1 - x0 - 0.6, tall);
      if (tall < LABEL_ROW - 1) continue;
      const left = Math.max(x0, GUTTER), room = Math.min(x1, this.width) - left - 3;
      const faded = v.filter !== null && !v.filter.has(t.microbatch[r]);
      c.font = `${Math.min(12, tall - 2)}px system-ui, sans-serif`;
      const each = Math.min(12, tall - 2) * 0.62;
      const short = String(t.microbatch[r]), long = v.palette.kinds[t.kind[r]].letter + short;
      const label = (t.digits + 1) * each + 2 <= room ? long : t.digits * each <= room ? short : "";
      c.fillStyle = faded ? "#999" : "#000";
      if (label) c.fillText(label, left + (room + 3) / 2, y + tall / 2 + 0.5);
    }
  }
  memory() {
    const c = this.context, t = this.timeline, v = this.viewer, columns = Math.ceil(this.width - GUTTER);
    const level = new Float64Array(columns), low = v.from / t.perTick;
    const up = (x0, x1, value) => {
      for (let i = Math.max(0, Math.floor(x0 - GUTTER)); i < Math.min(columns, x1 - GUTTER); i++)
        if (value > level[i]) level[i] = value;
    };
    for (let d = 0; d < t.devices; d++) {
      level.fill(0);
      const first = t.offsets[d], last = t.offsets[d + 1];
      let r = Math.max(t.firstAfter(d, low) - 1, first);
      if (t.part[r] === SECOND) r--;
      if (r === first) up(0, this.px(t.x(t.start[r])), t.base[d]);
      for (; r >= first && r < last && this.px(t.x(t.start[r])) < this.width; r = t.part[r] === FIRST ? r + 2 : r + 1) {
        const next = t.part[r] === FIRST ? r + 2 : r + 1;
        const end = this.px(t.x(t.end[r]));
        up(this.px(t.x(t.start[r])), end, t.during[r]);
        up(end, this.px(t.x(next < last ? t.start[next] : t.makespan)), t.held[r]);
      }
      const floor = this.top(d) + this.pitch - 2, scale = (this.strip - 4) / t.memoryTop;
      const limit = t.limit.length ? t.limit[d] : Infinity;
      for (let i = 0; i < columns; i++) {
        if (!level[i]) continue;
        const within = Math.min(level[i], limit) * scale;
        c.fillStyle = v.palette.memory; c.fillRect(GUTTER + i, floor - within, 1, within);
        c.fillStyle = v.palette.over; c.fillRect(GUTTER + i, floor - level[i] * scale, 1, level[i] * scale - within);
      }
      if (limit < Infinity) {
        c.strokeStyle = v.palette.limit; c.setLineDash([5, 3]); c.lineWidth = 1;
        line(c, [GUTTER, floor - limit * scale], [this.width, floor - limit * scale]); c.setLineDash([]);
      }
    }
  }
  critical() {
    const c = this.context, t = this.timeline;
    c.strokeStyle = "#000"; c.lineWidth = 1.5; c.beginPath();
    let last = null;
    for (let i = 0; i < t.pathRow.length; i++) {
      const x0 = this.px(t.x(t.pathStart[i])), x1 = this.px(t.x(t.pathEnd[i]));
      let y;
      if (t.pathPart[i] === COMPUTE) { const [at, tall] = this.lane(t.pathRow[i]); y = at + tall / 2; }
      else if (t.pathPart[i] === SYNCHRONISATION) {
        const at = t.syncStart.findIndex((s, k) => s === t.pathStart[i] && t.syncEnd[k] === t.pathEnd[i]);
        y = this.top(t.syncDevice[at]) + 0.88 * this.row;
      } else continue;
      const seen = x1 >= GUTTER && x0 <= this.width;
      if (last && (seen || last.seen)) { c.moveTo(last.x, last.y); c.lineTo(x0, y); }
      if (seen && t.pathPart[i] === COMPUTE && x1 - x0 >= FRAMED) {
        const [at, tall] = this.lane(t.pathRow[i]);
        c.rect(x0 + 0.5, at + 0.75, x1 - x0 - 1.5, tall - 1.5);
      } else if (seen) { c.moveTo(x0, y); c.lineTo(x1, y); }
      last = { x: x1, y, seen };
    }
    c.stroke();
  }
  /* Draws the transfers in view, or returns how many there are if they would hide the rest. */
  transfers() {
    const c = this.context, t = this.timeline, v = this.viewer, seen = [];
    const low = v.from / t.perTick, high = v.to / t.perTick;
    for (let i = 0; i < t.crossSource.length; i++) {
      const made = t.crossSource[i];
      if (t.sent[made] < high && t.arrival[made] > low && (v.filter === null || v.filter.has(t.microbatch[made]))) seen.push(i);
    }
    if (seen.length > MOST_TRANSFERS || seen.length * 3 > (this.width * t.devices) / 10) return seen.length;
    c.strokeStyle = c.fillStyle = v.palette.transfer; c.lineWidth = 1;
    for (const i of seen) {
      const made = t.crossSource[i], used = t.crossTarget[i], down = t.device[used] > t.device[made];
      const [y, tall] = this.lane(made), [other, height] = this.lane(used);
      this.arrow(c, this.px(t.x(t.sent[made])), y + (down ? tall * 0.85 : tall * 0.15),
        this.px(t.x(t.arrival[made])), other + (down ? height * 0.15 : height * 0.85));
    }
    return 0;
  }
  arrow(c, x0, y0, x1, y1) {
    line(c, [x0, y0], [x1, y1]);
    const angle = Math.atan2(y1 - y0, x1 - x0), size = 4;
    c.beginPath(); c.moveTo(x1, y1);
    for (const turn of [2.7, -2.7]) c.lineTo(x1 + size * Math.cos(angle + turn), y1 + size * Math.sin(angle + turn));
    c.fill();
  }
  axis() {
    const c = this.context, t = this.timeline, v = this.viewer, y = this.height - AXIS + 2;
    c.fillStyle = "#333"; c.strokeStyle = "#333"; c.lineWidth = 1;
    c.font = "11px system-ui, sans-serif"; c.textBaseline = "middle"; c.textAlign = "right";
    let every = 1;
    while (every * this.pitch < 13) every *= 2;
    for (let d = 0; d < t.devices; d += every) c.fillText(d, GUTTER - 5, this.top(d) + this.row / 2);
    line(c, [GUTTER, y], [this.width, y]);
    const wanted = ((v.to - v.from) * 90) / (this.width - GUTTER), power = 10 ** Math.floor(Math.log10(wanted));
    const step = power * [1, 2, 5, 10].find((s) => s * power >= wanted);
    c.textBaseline = "top";
    for (let i = Math.ceil(v.from / step - 1e-9); i * step <= v.to + step * 1e-9; i++) {
      const x = this.px(i * step);
      line(c, [x, y], [x, y + 4]);
      c.textAlign = x > this.width - 24 ? "right" : x < GUTTER + 12 ? "left" : "center";
      c.fillText(this.viewer.format(i * step), x, y + 6);
    }
  }
  drawOver() {
    const c = this.over.getContext("2d"), t = this.timeline, v = this.viewer;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.clearRect(0, 0, this.width, this.height);
    c.save(); c.beginPath(); c.rect(GUTTER, 0, this.width - GUTTER, this.height); c.clip();
    if (v.hovered?.panel === this) this.frame(c, v.hovered.row, "#000", 1.5);
    if (v.selected?.panel === this) {
      const row = v.selected.row;
      c.strokeStyle = "#0b3d91"; c.lineWidth = 1.6;
      if (t.source[row] >= 0) this.join(c, t.source[row], row);
      for (const other of t.consumers(row)) this.join(c, row, other);
      this.frame(c, row, "#0b3d91", 3);
    }
    c.restore();
    if (v.cursor !== null) {
      const x = this.px(v.cursor);
      if (x >= GUTTER && x <= this.width) {
        c.strokeStyle = "rgba(0,0,0,0.55)"; c.lineWidth = 1;
        line(c, [x, 0], [x, this.height - AXIS + 6]);
        c.font = "11px system-ui, sans-serif";
        const text = v.format(Number(v.cursor.toPrecision(5))), wide = c.measureText(text).width + 8;
        const left = Math.min(Math.max(x - wide / 2, GUTTER), this.width - wide);
        c.fillStyle = "#333"; c.fillRect(left, this.height - AXIS + 5, wide, 16);
        c.fillStyle = "#fff"; c.textBaseline = "top"; c.textAlign = "left"; c.fillText(text, left + 4, this.height - AXIS + 8);
      }
    }
  }
  frame(c, row, colour, width) {
    const t = this.timeline, [y, tall] = this.lane(row), x = this.px(t.x(t.start[row]));
    c.strokeStyle = colour; c.lineWidth = width;
    c.strokeRect(x, y + width / 2, Math.max(this.px(t.x(t.end[row])) - x - 0.6, 2), tall - width);
  }
  join(c, made, used) {
    const t = this.timeline, [y, tall] = this.lane(made), [other, height] = this.lane(used);
    line(c, [this.px(t.x(t.end[made])), y + tall / 2], [this.px(t.x(t.start[used])), other + height / 2]);
  }
  /* The op at a point; narrow ones within two pixels of it. */
  pick(x, y) {
    const t = this.timeline, device = Math.floor((y - TOP) / this.pitch);
    if (x < GUTTER || device < 0 || device >= t.devices || y - this.top(device) > this.row) return null;
    const near = 2 / this.scale / t.perTick, at = this.time(x) / t.perTick;
    let r = t.firstAfter(device, at);
    if (r >= t.offsets[device + 1] || t.start[r] > at) {
      if (r > t.offsets[device] && at - t.end[r - 1] < near) r--;
      else if (r >= t.offsets[device + 1] || t.start[r] - at > near) return null;
    }
    if (t.part[r] === SECOND) r--;
    const [top, tall] = this.lane(r);
    return t.part[r] === FIRST && y > top + tall ? r + 1 : r;
  }
  listen() {
    const v = this.viewer, c = this.over, at = (event) => {
      const box = c.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    c.addEventListener("wheel", (event) => {
      if (document.activeElement !== c && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
        v.pan((event.deltaX || event.deltaY) / 1000);
      else v.zoom(Math.exp(Math.sign(event.deltaY) * Math.min(Math.abs(event.deltaY), 120) / 400), this.time(at(event)[0]));
    }, { passive: false });
    c.onpointerdown = (event) => {
      const [x, y] = at(event);
      this.pointers.set(event.pointerId, x);
      this.pressed = { x, y, moved: false, from: v.from, to: v.to };
      c.setPointerCapture(event.pointerId);
      c.focus({ preventScroll: true });
    };
    c.onpointermove = (event) => {
      const [x, y] = at(event);
      v.cursor = x >= GUTTER ? Math.max(this.time(x), 0) : null;
      if (this.pointers.has(event.pointerId)) this.drag(event.pointerId, x);
      else v.hover(this, this.pick(x, y), event);
      v.overlay();
    };
    c.onpointerup = (event) => {
      const [x, y] = at(event), tapped = this.pointers.size === 1 && !this.pressed?.moved;
      this.pointers.delete(event.pointerId);
      if (tapped) v.select(this, this.pick(x, y));
    };
    c.onpointercancel = (event) => this.pointers.delete(event.pointerId);
    c.onpointerleave = () => { v.cursor = null; v.hover(this, null); v.overlay(); };
    c.ondblclick = (event) => v.zoom(0.4, this.time(at(event)[0]));
    c.onkeydown = (event) => { if (this.key(event)) event.preventDefault(); };
  }
  drag(pointer, x) {
    const v = this.viewer, before = this.pointers.get(pointer);
    if (this.pointers.size === 2) {
      const other = [...this.pointers].find(([id]) => id !== pointer)[1], now = Math.abs(x - other);
      if (now > 5) v.zoom(Math.abs(before - other) / now, this.time((x + other) / 2));
      this.pressed.moved = true;
      this.pointers.set(pointer, x);
    } else if (this.pressed.moved || Math.abs(x - this.pressed.x) > 4) {
      this.pressed.moved = true;
      v.hover(this, null);
      this.pointers.set(pointer, x);
      v.look(v.from - (x - before) / this.scale, v.to - (x - before) / this.scale);
    }
  }
  key(event) {
    const v = this.viewer, t = this.timeline;
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    const at = v.selected?.panel === this ? v.selected.row : null;
    const first = t.firstAfter(0, v.from / t.perTick);
    const go = (row) => { v.select(this, row ?? at ?? Math.min(first, t.rows - 1)); return true; };
    if (event.shiftKey && event.key.startsWith("Arrow")) {
      v.pan(event.key === "ArrowLeft" ? -0.2 : event.key === "ArrowRight" ? 0.2 : 0);
      return true;
    }
    const sideways = (by) => {
      const d = t.device[at] + by;
      if (d < 0 || d >= t.devices) return at;
      return Math.min(t.firstAfter(d, t.start[at]), t.offsets[d + 1] - 1);
    };
    switch (event.key) {
      case "+": case "=": v.zoom(0.6, at === null ? undefined : t.x(t.start[at])); return true;
      case "-": v.zoom(1 / 0.6, at === null ? undefined : t.x(t.start[at])); return true;
      case "0": v.look(0, v.full); return true;
      case "Escape": v.select(this, null); return true;
      case "ArrowLeft": return go(at === null ? null : at > t.offsets[t.device[at]] ? at - 1 : at);
      case "ArrowRight": return go(at === null ? null : at + 1 < t.offsets[t.device[at] + 1] ? at + 1 : at);
      case "ArrowUp": return go(at === null ? null : sideways(-1));
      case "ArrowDown": return go(at === null ? null : sideways(1));
      case "[": return go(at === null ? null : v.alongPath(t, at, -1));
      case "]": return go(at === null ? null : v.alongPath(t, at, 1));
      case "i": return go(at !== null && t.source[at] >= 0 ? t.source[at] : null);
      case "o": return go(at === null ? null : t.consumers(at)[0]);
    }
    return false;
  }
  /* Where the middle of an op stands in the window. */
  locate(row) {
    const t = this.timeline, box = this.over.getBoundingClientRect(), [y, tall] = this.lane(row);
    return { x: box.left + this.px(t.x((t.start[row] + t.end[row]) / 2)), y: box.top + y + tall / 2 };
  }
}

function line(c, [x0, y0], [x1, y1]) { c.beginPath(); c.moveTo(x0, y0); c.lineTo(x1, y1); c.stroke(); }
function element(tag, properties) { return Object.assign(document.createElement(tag), properties); }
function wrap(tag, ...children) { const made = document.createElement(tag); made.append(...children); return made; }

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
