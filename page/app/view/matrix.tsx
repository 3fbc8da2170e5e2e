// Packages by clusters. The canvas shows what is in sight; one element stands for the cell that has the focus.

import { Component } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Gate } from '../model/api';
import type { View } from '../model/filter';
import type { Fleet, Package } from '../model/fleet';
import { gatesBefore } from '../model/rollouts';
import { byPackage, waves } from '../model/waves';
import { isTrouble } from '../model/states';
import { plural, share } from '../model/words';
import { packageAddress } from '../route';
import { Painter, columnAt, columnLefts, type Scene } from './drawing';
import { GateState, Stack, packageParts } from './parts';

export interface Cell {
  package: Package;
  /** Number of the cluster. */
  cluster: number;
}

interface Props {
  fleet: Fleet;
  view: View;
  cellWidth: number;
  shows: Scene['shows'];
  focus: Cell | null;
  describe: (cell: Cell) => string;
  onFocus: (cell: Cell) => void;
  onHover: (cell: Cell | null) => void;
  onOpen: (cell: Cell) => void;
}

/** Widths of a cell that can be chosen. Letters and names of clusters fit from 14 on. */
export const WIDTHS = [4, 7, 10, 16, 24, 36] as const;
const WIDEST = 36;

/** The widest cell with which all columns are in sight, else one that is still told apart. */
export function fittingWidth(columns: number, space: number): number {
  // A finger needs more than a pointer, and scrolls more easily.
  const least = matchMedia('(pointer: coarse)').matches ? 16 : 7;
  return Math.max(least, Math.min(WIDEST, Math.floor(space / Math.max(1, columns))));
}

const ROW = 30;
const NO_GATES: Gate[] = [];

interface Size {
  width: number;
  height: number;
}

export function sideWidth(width: number): number {
  return width < 640 ? 148 : Math.min(360, Math.max(260, width * 0.26));
}

export function Matrix({ fleet, view, cellWidth, shows, focus, describe, onFocus, onHover, onOpen }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const side = useRef<HTMLDivElement>(null);
  const ring = useRef<HTMLDivElement>(null);
  const painter = useRef<Painter | null>(null);
  const hover = useRef<[number, number]>([-1, -1]);
  const frame = useRef(0);
  /** Whether a cell was chosen, so that the ring need not choose the first one when it gets the focus. */
  const moved = useRef(false);
  const [size, setSize] = useState<Size>({ width: 0, height: 0 });
  const [firstRow, setFirstRow] = useState(0);

  const { packages, clusters, groups } = view;
  const names = useMemo(() => namesHeight(fleet), [fleet, fleet.clusters.length]);
  const gates = useMemo(() => byPackage(fleet.gates.values()), [fleet, fleet.changed]);
  const before = useMemo(() => gatesBefore(fleet), [fleet, fleet.changed]);
  const left = sideWidth(size.width);
  const head = (groups.length > 0 ? 22 : 0) + (cellWidth >= 14 ? names : 26);
  const lefts = useMemo(
    () => columnLefts(clusters.length, groups, cellWidth, groups.length > 0 ? 8 : 0),
    [clusters, groups, cellWidth],
  );
  const right = (lefts.at(-1) ?? 0) + cellWidth;
  const row = useMemo(() => (focus ? packages.indexOf(focus.package) : -1), [packages, focus]);
  const column = useMemo(() => (focus ? clusters.indexOf(focus.cluster) : -1), [clusters, focus]);
  const lastRow = firstRow + Math.ceil(size.height / ROW) + 1;

  const paint = () => {
    frame.current = 0;
    const element = box.current;
    if (!element || !canvas.current || size.width === 0) return;
    painter.current ??= new Painter(canvas.current);
    const { scrollLeft, scrollTop } = element;
    painter.current.draw({
      fleet, packages, clusters, groups, lefts, cellWidth, shows,
      rowHeight: ROW,
      headHeight: head,
      sideWidth: left,
      width: size.width,
      height: size.height,
      scrollLeft,
      scrollTop,
      focus: [row, column],
      hover: hover.current,
    });
    if (side.current) side.current.style.transform = `translateY(${-scrollTop}px)`;
    if (ring.current) {
      const x = left + (lefts[column] ?? 0) - scrollLeft;
      const y = head + row * ROW - scrollTop;
      const inSight = row >= 0 && column >= 0 && x >= left - cellWidth && y >= head - ROW;
      ring.current.style.transform = `translate(${inSight ? x : -1000}px, ${inSight ? y : -1000}px)`;
    }
    setFirstRow(Math.floor(scrollTop / ROW));
  };
  const latest = useRef(paint);
  latest.current = paint;
  const soon = () => {
    frame.current ||= requestAnimationFrame(() => latest.current());
  };

  useLayoutEffect(() => {
    const element = box.current!;
    const measure = () => setSize({ width: element.clientWidth, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const recolour = () => {
      painter.current?.forget();
      soon();
    };
    const themes = new MutationObserver(recolour);
    themes.observe(document.documentElement, { attributeFilter: ['data-theme'] });
    dark.addEventListener('change', recolour);
    return () => {
      observer.disconnect();
      themes.disconnect();
      dark.removeEventListener('change', recolour);
      cancelAnimationFrame(frame.current);
    };
  }, []);
  useLayoutEffect(() => latest.current(), [fleet, view, shows, cellWidth, head, size, row, column]);

  const reveal = (toRow: number, toColumn: number) => {
    const element = box.current;
    if (!element) return;
    const x = lefts[toColumn] ?? 0;
    const y = toRow * ROW;
    const wide = size.width - left - cellWidth;
    const high = size.height - head - ROW;
    if (x < element.scrollLeft) element.scrollLeft = x;
    else if (x > element.scrollLeft + wide) element.scrollLeft = x - wide;
    if (y < element.scrollTop) element.scrollTop = y;
    else if (y > element.scrollTop + high) element.scrollTop = y - high;
  };
  useEffect(() => {
    if (row >= 0 && column >= 0 && size.width > 0) reveal(row, column);
  }, [row, column, size.width > 0]);

  const go = (toRow: number, toColumn: number) => {
    const item = packages[Math.max(0, Math.min(packages.length - 1, toRow))];
    const cluster = clusters[Math.max(0, Math.min(clusters.length - 1, toColumn))];
    if (item && cluster !== undefined) onFocus({ package: item, cluster });
    moved.current = true;
    ring.current?.focus({ preventScroll: true });
  };

  /** The next cell with trouble, from the focus on, row by row. */
  const nextTrouble = (step: 1 | -1) => {
    const all = packages.length * clusters.length;
    const troubled = fleet.states.map(isTrouble);
    const start = Math.max(0, row) * clusters.length + Math.max(0, column);
    for (let away = 1; away <= all; away += 1) {
      const at = (start + step * away + all) % all;
      const item = packages[Math.floor(at / clusters.length)]!;
      const cluster = clusters[at % clusters.length]!;
      const own = item.cells.state[cluster] ?? -1;
      const shown = shows?.(item)(own, item.cells.revision[cluster] ?? -1) ?? true;
      if (own >= 0 && troubled[own] && shown && !item.excuses.has(cluster)) return go(Math.floor(at / clusters.length), at % clusters.length);
    }
  };

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const pageRows = Math.max(1, Math.floor((size.height - head) / ROW) - 1);
    const [r, c] = [Math.max(0, row), Math.max(0, column)];
    const moves: Record<string, () => void> = {
      ArrowLeft: () => go(r, c - 1),
      ArrowRight: () => go(r, c + 1),
      ArrowUp: () => go(r - 1, c),
      ArrowDown: () => go(r + 1, c),
      Home: () => go(r, 0),
      End: () => go(r, clusters.length - 1),
      PageUp: () => go(r - pageRows, c),
      PageDown: () => go(r + pageRows, c),
      n: () => nextTrouble(1),
      N: () => nextTrouble(-1),
      Enter: () => focus && onOpen(focus),
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    move();
  };

  // Keys reach the matrix also while nothing else has the focus.
  const keys = useRef(onKeyDown);
  keys.current = onKeyDown;
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if (event.target === document.body) keys.current(event);
    };
    addEventListener('keydown', listen);
    return () => removeEventListener('keydown', listen);
  }, []);

  const cellAt = (event: MouseEvent): [number, number] => {
    const bounds = canvas.current!.getBoundingClientRect();
    const x = event.clientX - bounds.left - left;
    const y = event.clientY - bounds.top - head;
    if (x < 0 || y < 0) return [-1, -1];
    const atX = x + box.current!.scrollLeft;
    const place = columnAt(lefts, cellWidth, atX);
    const atRow = Math.floor((y + box.current!.scrollTop) / ROW);
    const there = atRow < packages.length && place < clusters.length && atX >= lefts[place]!;
    return there ? [atRow, place] : [-1, -1];
  };

  const onPointerMove = (event: PointerEvent) => {
    const [atRow, place] = cellAt(event);
    if (hover.current[0] === atRow && hover.current[1] === place) return;
    hover.current = [atRow, place];
    onHover(atRow < 0 ? null : { package: packages[atRow]!, cluster: clusters[place]! });
    soon();
  };

  return (
    <div class="matrix" ref={box} onScroll={soon}>
      <div class="space" style={{ width: `${left + right}px`, height: `${head + packages.length * ROW}px` }}>
        <div class="window" style={{ width: `${size.width}px`, height: `${size.height}px` }}>
          <canvas
            ref={canvas}
            aria-hidden="true"
            style={{ width: `${size.width}px`, height: `${size.height}px` }}
            onPointerMove={onPointerMove}
            onPointerLeave={() => {
              hover.current = [-1, -1];
              onHover(null);
              soon();
            }}
            onClick={(event) => {
              const [atRow, place] = cellAt(event);
              if (atRow >= 0) go(atRow, place);
            }}
            onDblClick={() => focus && onOpen(focus)}
          />
          <div class="corner num" style={{ width: `${left}px`, height: `${head}px` }}>
            <span>
              {plural(packages.length, 'package')}, {plural(clusters.length, 'cluster')}
            </span>
          </div>
          <div class="sides" style={{ width: `${left}px`, top: `${head}px` }}>
            <div ref={side}>
              {packages.slice(firstRow, lastRow).map((item, place) => (
                <Side
                  key={item.key}
                  item={item}
                  fleet={fleet}
                  gates={gates.get(item.key) ?? NO_GATES}
                  before={before}
                  top={(firstRow + place) * ROW}
                  focused={firstRow + place === row}
                />
              ))}
            </div>
          </div>
          <div class="rings" style={{ left: `${left}px`, top: `${head}px` }}>
            <div
              role="grid"
              aria-label="Packages by clusters"
              aria-rowcount={packages.length}
              aria-colcount={clusters.length}
              style={{ transform: `translate(${-left}px, ${-head}px)` }}
            >
              <div role="row" aria-rowindex={Math.max(1, row + 1)}>
                <div
                  role="gridcell"
                  class="ring"
                  ref={ring}
                  tabIndex={0}
                  aria-colindex={Math.max(1, column + 1)}
                  aria-label={focus ? describe(focus) : 'No cell has the focus: press an arrow key'}
                  style={{ width: `${cellWidth}px`, height: `${ROW}px` }}
                  onKeyDown={onKeyDown}
                  onFocus={() => !focus && !moved.current && go(0, 0)}
                />
              </div>
            </div>
          </div>
        </div>
      </div>
    </div>
  );
}

/** Room for the names of clusters, which stand upright, in pixels. */
function namesHeight(fleet: Fleet): number {
  const longest = fleet.clusters.reduce((most, { name }) => Math.max(most, name.length), 0);
  return Math.min(120, Math.max(44, 16 + longest * 6.5));
}

interface SideProps {
  item: Package;
  fleet: Fleet;
  gates: Gate[];
  /** The gate of the wave before, by keys of gates. */
  before: ReadonlyMap<string, string>;
  top: number;
  focused: boolean;
}

/** The head of a row. It is drawn anew only when its package is another one than before: a package is never changed in place. */
class Side extends Component<SideProps> {
  override shouldComponentUpdate(next: SideProps): boolean {
    const { item, gates, top, focused } = this.props;
    return item !== next.item || gates !== next.gates || top !== next.top || focused !== next.focused;
  }

  override render(props: SideProps) {
    return <SideContent {...props} />;
  }
}

function SideContent({ item, fleet, gates, before, top, focused }: SideProps) {
  const { namespace, name } = item.metadata;
  const healthy = item.counts[fleet.states.indexOf('Healthy')] ?? 0;
  const ordered = waves(gates, before).flatMap((wave) => wave.gates);
  return (
    <div class={focused ? 'side focused' : 'side'} style={{ top: `${top}px`, height: `${ROW}px` }}>
      <a href={packageAddress(item.key)} title={item.key}>
        {name}
        <span class="dim"> {namespace}</span>
      </a>
      <span class="pips">
        {ordered.slice(0, 5).map((gate) => (
          <span key={gate.metadata.name} title={`gate ${gate.metadata.name}: ${gate.verdict.state}`}>
            <GateState gate={gate} bare />
          </span>
        ))}
      </span>
      <Stack parts={packageParts(item, fleet)} total={item.total} label={item.key} />
      <span
        class="num ratio"
        title={`${healthy} of ${item.total} clusters are healthy at the wanted revision${item.excuses.size > 0 ? `, ${item.excuses.size} excused` : ''}`}
      >
        {item.total < 1000 ? healthy : share(healthy, item.total)}
        <span class="dim">{item.total < 1000 ? `/${item.total}` : ''}</span>
      </span>
    </div>
  );
}
