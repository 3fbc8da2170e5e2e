import { describe, expect, test } from 'vitest';
import type { Gate, Rollout, WaveStatus } from './api';
import { apply, read } from './fleet';
import { actions, currentWave, gatesBefore, quoted, rolloutParts, rolloutSign, waveOf, waveParts } from './rollouts';

const metadata = { namespace: 'a', name: 'payments', generation: 1 };
const wave = (name: string, state: string, clusters: number, admitted: number): WaveStatus => ({
  name, state, clusters, admitted, ...(state === 'Pending' ? {} : { gate: `payments-${name}` }),
});
const rollout = (waves: WaveStatus[], more: Partial<Rollout> = {}): Rollout => ({
  metadata, package: 'payments', paused: false, ready: false, stalled: false, reason: 'RollingOut', message: '', status: { revision: 'r2', waves }, ...more,
});
const gate = (name: string, counts: Record<string, number>, more: Partial<Gate> = {}): Gate => ({
  metadata: { namespace: 'a', name: `payments-${name}`, generation: 3 },
  spec: { fleetPackageRef: { name: 'payments' }, revision: 'r2', clusters: {} },
  status: { observedGeneration: 3, clusters: counts },
  verdict: { open: false, state: 'Waiting', reason: 'Progressing', message: '' },
  ...more,
});
const counts = (parts: { name: string; count: number }[]) => Object.fromEntries(parts.map((part) => [part.name, part.count]));

describe('the parts of a wave add up to its clusters', () => {
  test.each<[string, WaveStatus, Gate | undefined, Record<string, number>]>([
    ['not started', wave('w', 'Pending', 8, 0), undefined, { waiting: 8 }],
    ['not judged yet', wave('w', 'Progressing', 8, 3), undefined, { 'on the way': 3, waiting: 5 }],
    ['some of each', wave('w', 'Progressing', 10, 6), gate('w', { healthy: 2, failed: 1, stale: 1, progressing: 5, excused: 1 }), { healthy: 2, 'on the way': 1, failed: 1, 'not proved': 1, waiting: 4, excused: 1 }],
    ['those that wait are out of sight', wave('w', 'Progressing', 4, 1), gate('w', { healthy: 1, missing: 3 }), { healthy: 1, 'not proved': 3 }],
    ['of another generation', wave('w', 'Progressing', 4, 4), gate('w', { healthy: 4 }, { status: { observedGeneration: 2, clusters: { healthy: 4 } } }), { 'on the way': 4 }],
  ])('%s', (_, own, of, expected) => {
    const parts = waveParts(own, of);
    expect(counts(parts)).toEqual(expected);
    expect(parts.reduce((sum, part) => sum + part.count, 0)).toBe(own.clusters);
  });
});

test('a gate for another revision tells nothing of the rollout', () => {
  const one = rollout([wave('w', 'Progressing', 2, 2)]);
  const other = gate('w', { healthy: 2 });
  other.spec.revision = 'r1';
  const fleet = (own: Gate) => read({ cursor: '1-1', rollouts: [one], gates: [own] });
  expect(counts(rolloutParts(fleet(gate('w', { healthy: 2 })), one))).toEqual({ healthy: 2 });
  expect(counts(rolloutParts(fleet(other), one))).toEqual({ 'on the way': 2 });
  expect(waveOf(fleet(other), 'a/payments-w')).toEqual({ key: 'a/payments', rollout: 'payments', name: 'w' });
  expect(waveOf(fleet(other), 'a/other')).toBeNull();
});

test.each([
  [[wave('a', 'Open', 2, 2), wave('b', 'Open', 4, 3), wave('c', 'Pending', 1, 0)], 1],
  [[wave('a', 'Open', 2, 2), wave('b', 'Failed', 4, 4)], 1],
  [[wave('a', 'Open', 2, 2), wave('b', 'Open', 0, 0)], 1],
  [[], -1],
])('the wave that is under way %#', (waves, at) => {
  expect(currentWave(rollout(waves))).toBe(at);
});

test.each([
  [{ stalled: true, paused: true }, 'stalled'],
  [{ ready: true }, 'rolled out'],
  [{ paused: true }, 'held'],
  [{ reason: 'Frozen' }, 'held'],
  [{}, 'under way'],
  [{ reason: 'NoRevision' }, 'waiting'],
])('%j is %s', (more, words) => {
  expect(rolloutSign(rollout([], more)).words).toBe(words);
});

describe('what can be done', () => {
  const waves = [wave('a', 'Open', 2, 2), wave('b', 'Progressing', 4, 4)];
  const approval = { open: false, state: 'Waiting', reason: 'ApprovalRequired', message: '', waitingFor: [{ reason: 'ApprovalRequired', message: '', count: 0 }] };
  test.each<[string, Rollout, Gate | undefined, string[]]>([
    ['under way', rollout(waves), gate('b', {}), ['promote --wave b', 'pause']],
    ['its gate is not there', rollout(waves), undefined, ['pause']],
    ['its gate is open', rollout(waves), gate('b', {}, { verdict: { ...approval, open: true, waitingFor: [] } }), ['pause']],
    ['it waits for somebody', rollout(waves), gate('b', {}, { verdict: approval }), ['approve --wave b', 'promote --wave b', 'pause']],
    ['no gate helps', rollout(waves, { stalled: true, reason: 'WavesOverlap' }), gate('b', {}), ['pause']],
    ['paused', rollout(waves, { paused: true, reason: 'GatePaused' }), gate('b', {}), ['resume']],
    ['paused and done', rollout(waves, { paused: true, ready: true, reason: 'RolledOut' }), gate('b', {}), ['resume']],
    ['done', rollout(waves, { ready: true, reason: 'RolledOut' }), gate('b', {}), []],
  ])('%s', (_, own, of, expected) => {
    const lines = actions(own, of).map(({ words }) => words.join(' ').replace('statusbridge rollout ', '').replace(' payments -n a', ''));
    expect(lines).toEqual(expected);
  });

  test.each([
    ['payments', 'payments'],
    ['', "''"],
    ['two words', "'two words'"],
    ["it's $(rm -rf ~)", String.raw`'it'\''s $(rm -rf ~)'`],
    ['a;b', "'a;b'"],
  ])('a shell takes %j for one word', (word, expected) => {
    expect(quoted(word)).toBe(expected);
  });
});

test('each gate of a rollout comes after that of the wave before that has one', () => {
  const waves = [wave('one', 'Open', 1, 1), { ...wave('none', 'Open', 0, 0), gate: undefined }, wave('two', 'Open', 1, 1), wave('three', 'Pending', 1, 0)];
  const fleet = read({ cursor: '1-1', rollouts: [rollout(waves)] });
  expect([...gatesBefore(fleet)]).toEqual([['a/payments-two', 'a/payments-one']]);
});

test('changes of rollouts are taken over, told, and forgotten', () => {
  const one = rollout([wave('w', 'Progressing', 2, 1)]);
  const fleet = read({ cursor: '1-1', rollouts: [one] });
  apply(fleet, { cursor: '1-2', rollouts: [{ ...one, reason: 'WaveFailed', stalled: true, status: { ...one.status, wave: 'w (1/1)' } }] });
  expect(fleet.steps.map(({ kind, key, from, to }) => [kind, key, from, to])).toEqual([['rollout', 'a/payments', 'RollingOut', 'WaveFailed, w (1/1)']]);
  expect([fleet.changed, fleet.rollouts.get('a/payments')?.stalled]).toEqual([1, true]);
  apply(fleet, { cursor: '1-3', gone: { rollouts: ['a/payments'] } });
  expect([fleet.changed, fleet.rollouts.size]).toEqual([2, 0]);
});
