// Times and durations. All are seconds since 1970 or seconds, and the present is passed in.

/** Seconds in a duration such as `90s` or `1h30m`; 0 for none and for what is no duration. */
export function seconds(text: string | undefined): number {
  const parts = /^(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?$/.exec(text ?? '');
  if (!parts) return 0;
  const [hours, minutes, rest] = [1, 2, 3].map((at) => Number(parts[at] ?? 0));
  return hours! * 3600 + minutes! * 60 + rest!;
}

/** Seconds since 1970; null for what is no time. */
export function unix(text: string | null | undefined): number | null {
  const at = text ? Date.parse(text) / 1000 : NaN;
  return Number.isFinite(at) ? at : null;
}

/** A duration in the two largest units that matter: `3m 20s`. */
export function span(duration: number): string {
  const whole = Math.max(0, Math.round(duration));
  if (whole < 60) return `${whole}s`;
  const units: [number, string, number, string][] = [
    [86400, 'd', 3600, 'h'],
    [3600, 'h', 60, 'm'],
    [60, 'm', 1, 's'],
  ];
  for (const [large, largeName, small, smallName] of units) {
    if (whole < large) continue;
    const rest = Math.floor((whole % large) / small);
    return `${Math.floor(whole / large)}${largeName}${rest > 0 ? ` ${rest}${smallName}` : ''}`;
  }
  return `${whole}s`;
}

/** The time of day; with the date and without seconds when it is another day than `now`. */
export function clock(at: number, now: number): string {
  const date = new Date(at * 1000);
  const two = (value: number) => String(value).padStart(2, '0');
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
  const same = date.toDateString() === new Date(now * 1000).toDateString();
  return same ? `${time}:${two(date.getSeconds())}` : `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

export interface Bar {
  /** From 0 to 1. */
  done: number;
  /** Seconds left; 0 when it is over. */
  left: number;
  whole: number;
}

function bar(from: number, whole: number, now: number): Bar {
  const passed = Math.min(whole, Math.max(0, now - from));
  return { done: whole > 0 ? passed / whole : 1, left: whole - passed, whole };
}

/** How far the last cluster's soak has come: `until` is its end, `minSuccessTime` its length. */
export function soakBar(until: string | undefined, minSuccessTime: string | undefined, now: number): Bar | null {
  const [end, whole] = [unix(until), seconds(minSuccessTime)];
  return end === null || whole === 0 ? null : bar(end - whole, whole, now);
}

/** How much of the time to reach the revision is over. */
export function deadlineBar(startedAt: string | undefined, progressDeadline: string | undefined, now: number): Bar | null {
  const [start, whole] = [unix(startedAt), seconds(progressDeadline)];
  return start === null || whole === 0 ? null : bar(start, whole, now);
}
