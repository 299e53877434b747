const GUTTER = 34, TOP = 6, AXIS = 22, LABEL_ROW = 12, WIDE = 2.5, FRAMED = 8, MOST_TRANSFERS = 3000, SHADES = 16;

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
    this.spans("update", v.palette.update, 0, 1);
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
      } else if (t.pathPart[i] === OPTIMIZER) {
        const at = t.updateStart.findIndex((s, k) => s === t.pathStart[i] && t.updateEnd[k] === t.pathEnd[i]);
        y = this.top(t.updateDevice[at]) + 0.5 * this.row;
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
      const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 30 : 1, x = event.deltaX * unit, y = event.deltaY * unit;
      if (event.shiftKey || Math.abs(x) > Math.abs(y)) v.pan((x || y) / 1000);
      else v.zoom(Math.exp(Math.sign(y) * Math.min(Math.abs(y), 120) / 400), this.time(at(event)[0]));
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
function channels(colour) { return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)); }
function mix(a, b, share) { return a.map((c, i) => Math.round(c + (b[i] - c) * share)); }
function css([r, g, b]) { return `rgb(${r},${g},${b})`; }
