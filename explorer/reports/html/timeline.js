"use strict";
/* A timeline's data: one JSON block a page; each timeline's columns are typed arrays behind each other, gzipped, in base64.
   panel.js draws one timeline, viewer.js holds what all of a page share. */

const TYPES = { u1: Uint8Array, i4: Int32Array, f8: Float64Array };
const WHOLE = 0, FIRST = 1, SECOND = 2, W = 2;
const COMPUTE = 0, SYNCHRONISATION = 3, OPTIMIZER = 4;

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
    for (const kind of ["wait", "send", "sync", "update"]) this[kind + "Of"] = ranges(this[kind + "Device"], this.devices);
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
