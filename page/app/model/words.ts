// Words for people.

/** A revision short enough for a table: `main@4f0e2a9`, `sha256:4f0e2a9`, `v1.2.3`. */
export function short(revision: string | null | undefined): string {
  if (!revision) return '–';
  const digest = /^(.*[@:/])?(?:sha\d+:)?([0-9a-f]{12,})$/.exec(revision);
  if (digest) {
    const before = (digest[1] ?? '').replace(/sha\d+:$/, '');
    const branch = before.length > 24 ? `…${before.slice(-20)}` : before;
    return branch + digest[2]!.slice(0, branch ? 7 : 12);
  }
  return revision.length > 28 ? `${revision.slice(0, 16)}…${revision.slice(-8)}` : revision;
}

/** A share that is rounded down, so that only all is 100%. */
export function share(part: number, whole: number): string {
  return whole > 0 ? `${(Math.floor((1000 * part) / whole) / 10).toFixed(1)}%` : '–';
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`;
}

/** The text cut before and after each of the names: what is at an odd place is a name. */
export function namesIn(text: string, names: string[]): string[] {
  if (names.length === 0) return [text];
  const longestFirst = [...names].sort((a, b) => b.length - a.length);
  const escaped = longestFirst.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  return text.split(new RegExp(`(?<![\\w.-])(${escaped.join('|')})(?![\\w-])`));
}
