// Draws the cells of the matrix on a canvas: only those in sight, from strips that were drawn once.

import type { Fleet, Package } from '../model/fleet';
import type { Group } from '../model/filter';
import { type Kind, look } from '../model/states';

export interface Scene {
  fleet: Fleet;
  packages: Package[];
  clusters: number[];
  groups: Group[];
  /** Place of each column's left edge, without scrolling. */
  lefts: Float64Array;
  cellWidth: number;
  rowHeight: number;
  headHeight: number;
  /** Width of the names of packages at the left, which the canvas leaves free. */
  sideWidth: number;
  width: number;
  height: number;
  scrollLeft: number;
  scrollTop: number;
  /** Row and column; -1 for none. */
  focus: [number, number];
  hover: [number, number];
  shows: ((item: Package) => (state: number, revision: number) => boolean) | null;
}

interface Colours {
  [name: string]: string;
}

const NAMES = ['paper', 'ink', 'dim', 'line', 'accent', 'stripe', 'good', 'moving', 'waiting', 'bad', 'unproved', 'on-bad', 'on-moving'];

function colours(): Colours {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** The first column whose right edge is behind `x`. */
export function columnAt(lefts: Float64Array, cellWidth: number, x: number): number {
  let low = 0;
  let high = lefts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lefts[middle]! + cellWidth > x) high = middle;
    else low = middle + 1;
  }
  return low;
}

export function columnLefts(count: number, groups: Group[], cellWidth: number, gap: number): Float64Array {
  const lefts = new Float64Array(count);
  let at = 0;
  for (const { from, to } of groups.length > 0 ? groups : [{ from: 0, to: count }]) {
    for (let place = from; place < to; place += 1) {
      lefts[place] = at;
      at += cellWidth;
    }
    at += gap;
  }
  return lefts;
}

/** Each kind has a shape of its own, so that it is told without colour and in the smallest cell. */
function shape(context: CanvasRenderingContext2D, kind: Kind, w: number, h: number, colour: string): void {
  context.fillStyle = colour;
  context.strokeStyle = colour;
  context.lineWidth = w >= 10 ? 1.5 : 1;
  switch (kind) {
    case 'good': {
      // A low block: calm.
      const height = Math.max(3, Math.round(h * 0.3));
      context.fillRect(0, h - height, w, height);
      break;
    }
    case 'moving': {
      // A rising triangle.
      context.beginPath();
      context.moveTo(0, h);
      context.lineTo(w, h);
      context.lineTo(w, h * 0.2);
      context.closePath();
      context.fill();
      break;
    }
    case 'waiting': {
      // A line in the middle.
      const height = Math.max(2, Math.round(h * 0.16));
      context.fillRect(0, Math.round((h - height) / 2), w, height);
      break;
    }
    case 'bad':
      // The whole cell.
      context.fillRect(0, 0, w, h);
      break;
    case 'unproved': {
      // A hollow frame.
      const inset = context.lineWidth / 2;
      context.strokeRect(inset, inset, w - 2 * inset, h - 2 * inset);
      break;
    }
  }
}

/** A large cell has the letter, on a ground that leaves it legible. */
function letter(context: CanvasRenderingContext2D, word: string, w: number, h: number, palette: Colours): void {
  const { kind, letter: sign } = look(word);
  const filled = kind === 'bad' || kind === 'moving';
  if (kind === 'good') {
    // Most cells are good: what is no reason to look has no letter.
    shape(context, kind, w, h, palette.good!);
    return;
  }
  if (filled) {
    context.fillStyle = palette[kind]!;
    if (kind === 'bad') context.fillRect(0, 0, w, h);
    else {
      // Cut at the corner, so that it is no failure even in grey.
      const cut = Math.min(7, w / 2);
      context.beginPath();
      context.moveTo(0, h);
      context.lineTo(0, cut);
      context.lineTo(cut, 0);
      context.lineTo(w, 0);
      context.lineTo(w, h);
      context.closePath();
      context.fill();
    }
  } else if (kind === 'unproved') {
    shape(context, kind, w, h, palette.unproved!);
  } else {
    context.fillStyle = palette.waiting!;
    context.fillRect(0, h - 2, w, 2);
  }
  const ink = kind === 'bad' ? palette['on-bad'] : kind === 'moving' ? palette['on-moving'] : palette[kind];
  context.fillStyle = ink!;
  context.font = `600 ${Math.min(12, w - 4)}px system-ui, sans-serif`;
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.fillText(sign, w / 2, h / 2 + 0.5);
}

/** Cells in a strip. */
const STRIP = 64;

export class Painter {
  private strips = new Map<string, HTMLCanvasElement>();
  private palette: Colours = {};
  private theme = '';

  constructor(private canvas: HTMLCanvasElement) {}

  /** Forgets the colours, after a change of theme. */
  forget(): void {
    this.theme = '';
  }

  /** A strip of cells in the same state, drawn once. */
  private strip(word: string, cellWidth: number, h: number, ratio: number): HTMLCanvasElement {
    const key = `${word} ${cellWidth} ${h} ${ratio}`;
    let strip = this.strips.get(key);
    if (!strip) {
      const w = cellWidth - (cellWidth >= 14 ? 2 : cellWidth >= 6 ? 1 : 0);
      strip = document.createElement('canvas');
      strip.width = Math.ceil(STRIP * cellWidth * ratio);
      strip.height = Math.ceil(h * ratio);
      const context = strip.getContext('2d')!;
      context.scale(ratio, ratio);
      const { kind } = look(word);
      for (let place = 0; place < STRIP; place += 1) {
        if (w >= 12) letter(context, word, w, h, this.palette);
        else shape(context, kind, w, h, this.palette[kind]!);
        context.translate(cellWidth, 0);
      }
      this.strips.set(key, strip);
    }
    return strip;
  }

  draw(scene: Scene): void {
    const { canvas } = this;
    const ratio = devicePixelRatio || 1;
    const { width, height, sideWidth, headHeight, rowHeight, cellWidth, scrollLeft, scrollTop } = scene;
    const wide = Math.round(width * ratio);
    const high = Math.round(height * ratio);
    if (canvas.width !== wide || canvas.height !== high) {
      canvas.width = wide;
      canvas.height = high;
    }
    if (this.theme === '') {
      this.palette = colours();
      this.strips.clear();
      this.theme = 'known';
    }
    const context = canvas.getContext('2d', { alpha: false })!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = this.palette.paper!;
    context.fillRect(0, 0, width, height);
    const firstRow = Math.floor(scrollTop / rowHeight);
    const lastRow = Math.min(scene.packages.length, Math.ceil((scrollTop + height - headHeight) / rowHeight));
    const firstColumn = columnAt(scene.lefts, cellWidth, scrollLeft);
    const lastColumn = Math.min(
      scene.clusters.length,
      columnAt(scene.lefts, cellWidth, scrollLeft + width - sideWidth) + 1,
    );
    context.save();
    context.beginPath();
    context.rect(sideWidth, headHeight, width - sideWidth, height - headHeight);
    context.clip();
    this.rows(context, scene, firstRow, lastRow, firstColumn, lastColumn, ratio);
    context.restore();
    context.save();
    context.beginPath();
    context.rect(sideWidth, 0, width - sideWidth, headHeight);
    context.clip();
    this.head(context, scene, firstColumn, lastColumn);
    context.restore();
  }

  private rows(
    context: CanvasRenderingContext2D,
    scene: Scene,
    firstRow: number,
    lastRow: number,
    firstColumn: number,
    lastColumn: number,
    ratio: number,
  ): void {
    const { sideWidth, headHeight, rowHeight, cellWidth, width, scrollLeft, scrollTop, lefts } = scene;
    const h = rowHeight - (rowHeight > 20 ? 8 : 4);
    const strips: (HTMLCanvasElement | undefined)[] = [];
    const [hoverRow, hoverColumn] = scene.hover;
    if (hoverColumn >= 0) {
      context.fillStyle = this.palette.stripe!;
      context.fillRect(sideWidth + lefts[hoverColumn]! - scrollLeft, headHeight, cellWidth, scene.height);
    }
    for (let row = firstRow; row < lastRow; row += 1) {
      const item = scene.packages[row];
      if (!item) continue;
      const y = headHeight + row * rowHeight - scrollTop;
      if (row === hoverRow || row === scene.focus[0]) {
        context.fillStyle = this.palette.stripe!;
        context.fillRect(sideWidth, y, width, rowHeight);
      }
      context.fillStyle = this.palette.line!;
      context.fillRect(sideWidth, y + rowHeight - 1, width, 1);
      const shows = scene.shows?.(item) ?? null;
      const { state, revision } = item.cells;
      const top = Math.round(y + (rowHeight - h) / 2 - 0.5);
      for (let place = firstColumn; place < lastColumn; ) {
        // Neighbours in the same state are drawn at one go.
        const cluster = scene.clusters[place]!;
        const own = state[cluster] ?? -1;
        const faint = shows !== null && !shows(own, revision[cluster] ?? -1);
        const excused = item.excuses.has(cluster);
        const left = lefts[place]!;
        let count = 1;
        for (; count < STRIP && place + count < lastColumn; count += 1) {
          const next = scene.clusters[place + count]!;
          const same = state[next] === own && lefts[place + count] === left + count * cellWidth;
          if (!same || item.excuses.has(next) !== excused || (shows !== null && shows(own, revision[next] ?? -1) === faint)) break;
        }
        place += count;
        if (own < 0) continue;
        const strip = (strips[own] ??= this.strip(scene.fleet.states[own] ?? '', cellWidth, h, ratio));
        const wide = count * cellWidth;
        context.globalAlpha = faint ? 0.18 : excused ? 0.4 : 1;
        context.drawImage(strip, 0, 0, wide * ratio, strip.height, sideWidth + left - scrollLeft, top, wide, strip.height / ratio);
        if (excused) this.strike(context, sideWidth + left - scrollLeft, top, cellWidth, strip.height / ratio, count);
      }
      context.globalAlpha = 1;
    }
  }

  /** A line through cells of clusters that need not be healthy. */
  private strike(context: CanvasRenderingContext2D, left: number, top: number, wide: number, high: number, count: number): void {
    context.globalAlpha = 1;
    context.strokeStyle = this.palette.ink!;
    context.lineWidth = 1;
    context.beginPath();
    for (let cell = 0; cell < count; cell += 1) {
      // Nothing of it reaches into the cell before.
      context.moveTo(left + cell * wide + 0.5, top + high);
      context.lineTo(left + (cell + 1) * wide - 1, top);
    }
    context.stroke();
  }

  private head(context: CanvasRenderingContext2D, scene: Scene, firstColumn: number, lastColumn: number): void {
    const { sideWidth, headHeight, cellWidth, scrollLeft, lefts, groups, width } = scene;
    context.fillStyle = this.palette.paper!;
    context.fillRect(sideWidth, 0, width, headHeight);
    const strip = groups.length > 0 ? 22 : 0;
    context.textBaseline = 'middle';
    context.textAlign = 'left';
    context.font = '600 12px system-ui, sans-serif';
    for (const { name, from, to } of groups) {
      if (to <= firstColumn || from >= lastColumn) continue;
      const left = sideWidth + lefts[from]! - scrollLeft;
      const right = sideWidth + lefts[to - 1]! + cellWidth - scrollLeft;
      context.fillStyle = this.palette.line!;
      context.fillRect(left, strip - 3, right - left, 2);
      const from0 = Math.max(left, sideWidth);
      if (right - from0 < 18) continue;
      context.save();
      context.beginPath();
      context.rect(from0, 0, right - from0, strip);
      context.clip();
      context.fillStyle = this.palette.ink!;
      context.fillText(name, from0 + 2, strip / 2 - 2);
      const nameWidth = context.measureText(name).width;
      context.fillStyle = this.palette.dim!;
      context.font = '12px system-ui, sans-serif';
      context.fillText(String(to - from), from0 + nameWidth + 8, strip / 2 - 2);
      context.font = '600 12px system-ui, sans-serif';
      context.restore();
    }
    if (cellWidth >= 14) {
      context.font = '11px system-ui, sans-serif';
      for (let place = firstColumn; place < lastColumn; place += 1) {
        const cluster = scene.fleet.clusters[scene.clusters[place]!];
        const strong = place === scene.hover[1] || place === scene.focus[1];
        context.save();
        context.translate(sideWidth + lefts[place]! - scrollLeft + cellWidth / 2 - 1, headHeight - 5);
        context.rotate(-Math.PI / 2);
        context.fillStyle = strong ? this.palette.ink! : this.palette.dim!;
        context.fillText(cut(context, cluster?.name ?? '', headHeight - strip - 10), 0, 0);
        context.restore();
      }
    }
    context.fillStyle = this.palette.line!;
    context.fillRect(sideWidth, headHeight - 1, width, 1);
  }
}

const widths = new Map<string, string>();

/** The text, or its beginning and end with dots between where it is too long. */
function cut(context: CanvasRenderingContext2D, text: string, width: number): string {
  const key = `${width} ${text}`;
  let shown = widths.get(key);
  if (shown === undefined) {
    shown = text;
    for (let keep = text.length; keep > 4 && context.measureText(shown).width > width; keep -= 1) {
      shown = `${text.slice(0, Math.ceil(keep / 2))}…${text.slice(text.length - Math.floor(keep / 2))}`;
    }
    if (widths.size > 50_000) widths.clear();
    widths.set(key, shown);
  }
  return shown;
}
