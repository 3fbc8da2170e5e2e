// How the states of clusters look: colour, shape and letter, so that none is told by colour alone.

/** Good, on the way, waiting, bad, not proved. */
export type Kind = 'good' | 'moving' | 'waiting' | 'bad' | 'unproved';

export interface Look {
  kind: Kind;
  /** One letter or sign, different for each state. */
  letter: string;
  meaning: string;
}

const LOOKS: Record<string, Look> = {
  Failed: { kind: 'bad', letter: 'F', meaning: 'applying failed, or the package is unhealthy' },
  TimeOut: { kind: 'bad', letter: 'T', meaning: 'not at the revision by the deadline' },
  Conflict: { kind: 'unproved', letter: 'C', meaning: 'two clusters report under this name' },
  ClockSkew: { kind: 'unproved', letter: 'K', meaning: 'its clock cannot be believed' },
  Unverified: { kind: 'unproved', letter: 'U', meaning: 'its data does not add up to what it attests' },
  BackendUnavailable: { kind: 'unproved', letter: 'B', meaning: 'nothing can be told: the metrics backend does not answer' },
  Stale: { kind: 'unproved', letter: 'S', meaning: 'not heard from in time' },
  Missing: { kind: 'unproved', letter: 'M', meaning: 'never heard from, or reports no such package' },
  Superseded: { kind: 'waiting', letter: '»', meaning: 'moved on to another revision' },
  NotUpdated: { kind: 'waiting', letter: 'N', meaning: 'not told to run the wanted revision yet' },
  Paused: { kind: 'waiting', letter: 'I', meaning: 'delivery is paused' },
  Deleting: { kind: 'waiting', letter: 'D', meaning: 'the package is being deleted' },
  HealthUnknown: { kind: 'unproved', letter: '?', meaning: 'applied, but its health cannot be told' },
  Progressing: { kind: 'moving', letter: 'P', meaning: 'being applied, or not healthy yet' },
  Soaking: { kind: 'moving', letter: 'O', meaning: 'healthy, but not for long enough yet' },
  Healthy: { kind: 'good', letter: 'H', meaning: 'healthy at the wanted revision' },
};

/** Worst first. */
export const ORDER: string[] = Object.keys(LOOKS);

export function look(state: string): Look {
  return LOOKS[state] ?? { kind: 'unproved', letter: '·', meaning: 'a state that this page does not know' };
}

/** Place in the order of importance; states that the page does not know come after failures. */
export function rank(state: string): number {
  const at = ORDER.indexOf(state);
  return at < 0 ? 2 : at;
}

/** Whether somebody should look at it. */
export function isTrouble(state: string): boolean {
  const { kind } = look(state);
  return kind === 'bad' || kind === 'unproved';
}

export interface Part {
  name: string;
  kind: Kind;
  count: number;
}

/** The counts of a gate's status as parts that add up to its total. */
export function gateParts(counts: Partial<Record<string, number>> | undefined): Part[] {
  const of = (name: string) => counts?.[name] ?? 0;
  const soaking = of('soaking');
  return [
    { name: 'healthy', kind: 'good' as const, count: of('healthy') },
    { name: 'soaking', kind: 'moving' as const, count: soaking },
    { name: 'progressing', kind: 'moving' as const, count: of('progressing') - soaking },
    { name: 'superseded', kind: 'waiting' as const, count: of('superseded') },
    { name: 'failed', kind: 'bad' as const, count: of('failed') },
    { name: 'stale', kind: 'unproved' as const, count: of('stale') },
    { name: 'missing', kind: 'unproved' as const, count: of('missing') },
    { name: 'unverified', kind: 'unproved' as const, count: of('unverified') },
    { name: 'conflicting', kind: 'unproved' as const, count: of('conflicting') },
  ].filter((part) => part.count > 0);
}
