// How many clusters became healthy at the wanted revision, over time.

import { clock, span, unix } from '../model/time';

const [WIDTH, HEIGHT] = [420, 120];

/** A line in steps: a count holds until the next one. Without points there is none. */
export function steps(points: [number, number][], from: number, to: number, total: number): string {
  if (points.length === 0) return '';
  const x = (at: number) => (to > from ? ((at - from) / (to - from)) * WIDTH : WIDTH).toFixed(1);
  const y = (count: number) => (HEIGHT - (total > 0 ? count / total : 0) * (HEIGHT - 8)).toFixed(1);
  const path = points.map(([at, count], place) => `${place === 0 ? 'M' : 'H'}${place === 0 ? `${x(at)},${y(0)}` : x(at)}V${y(count)}`);
  return `${path.join('')}H${x(to)}`;
}

export function Adoption({ points, total, now }: { points: [string, number][]; total: number; now: number }) {
  const known = points.flatMap(([at, count]): [number, number][] => {
    const time = unix(at);
    return time === null ? [] : [[time, count]];
  });
  const first = known[0]?.[0] ?? now;
  const last = known.at(-1);
  if (!last) return null;
  const line = steps(known, first, Math.max(now, first + 1), total);
  const words = `${last[1]} of ${total} clusters are healthy at the wanted revision; the first since ${clock(first, now)}`;
  return (
    <figure class="adoption">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={words} preserveAspectRatio="none">
        <line x1="0" x2={WIDTH} y1="8" y2="8" class="limit" />
        <path d={`${line}V${HEIGHT}H0Z`} class="area" />
        <path d={line} class="line" />
      </svg>
      <figcaption class="dim num">
        <span>{span(now - first)} ago</span>
        <span>
          {last[1]} of {total}
        </span>
        <span>now</span>
      </figcaption>
    </figure>
  );
}
