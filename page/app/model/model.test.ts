import { describe, expect, test } from 'vitest';
import type { Changes, Gate, Snapshot } from './api';
import { change, countRevisions, countStates, decode, grown } from './cells';
import { clustersOf, membership, needAndBudget } from './clusters';
import { type Filter, view } from './filter';
import { apply, read } from './fleet';
import { search } from './search';
import { ORDER, gateParts, look } from './states';
import { clock, deadlineBar, seconds, soakBar, span } from './time';
import { byPackage, waves } from './waves';
import { namesIn, share, short } from './words';

const spec = { package: { source: 'flux', name: 'p' } };

function item(key: string, cells: [number, number, number][], wanted: string | null = 'r2') {
  const [namespace = '', name = ''] = key.split('/');
  return { metadata: { namespace, name }, spec, status: null, wanted, revisions: ['r1', 'r2'], cells };
}

function gate(name: string, after: string[] = [], state = 'Waiting', about = 'payments'): Gate {
  return {
    metadata: { namespace: 'a', name, generation: 1 },
    spec: {
      fleetPackageRef: { name: about },
      revision: 'r2',
      clusters: { reporting: {} },
      dependsOn: after.map((other) => ({ name: other })),
    },
    status: null,
    verdict: { open: state === 'Open', state, reason: state, message: '' },
  };
}

function snapshot(changed: Partial<Snapshot> = {}): Snapshot {
  return {
    cursor: '1-0',
    asOf: '2026-01-01T00:00:00Z',
    evaluatedAt: '2026-01-01T00:00:02Z',
    silent: null,
    states: ['Failed', 'Healthy', 'NotUpdated'],
    clusters: [
      { name: 'eu-10', labels: { region: 'eu' } },
      { name: 'eu-9', labels: { region: 'eu' } },
      { name: 'us-1', labels: { region: 'us' } },
      { name: 'lab' },
    ],
    packages: [item('a/payments', [[2, 1, 1], [1, 0, 1], [1, -1, -1]]), item('b/search', [[1, 2, 0], [3, 1, 1]])],
    gates: [],
    ...changed,
  };
}

const heartbeat: Changes = { cursor: '1-1', asOf: null, evaluatedAt: '2026-01-01T00:00:03Z', silent: null };

describe('cells', () => {
  test('run lengths are decoded over the clusters', () => {
    const cells = decode([[2, 0, 5], [1, -1, -1], [3, 1, 0]], 6);
    expect([...cells.state]).toEqual([0, 0, -1, 1, 1, 1]);
    expect([...cells.revision]).toEqual([5, 5, -1, 0, 0, 0]);
  });
  test.each([
    ['too long', [[9, 1, 1]] as [number, number, number][], [1, 1, 1]],
    ['too short', [[1, 1, 1]] as [number, number, number][], [1, -1, -1]],
    ['negative', [[-4, 1, 1], [1, 0, 0]] as [number, number, number][], [0, -1, -1]],
    ['empty', [] as [number, number, number][], [-1, -1, -1]],
  ])('runs that are %s fill no cell that is not theirs', (_, runs, expected) => {
    expect([...decode(runs, 3).state]).toEqual(expected);
  });
  test('changes touch the cells that they name alone', () => {
    const cells = decode([[4, 1, 1]], 4);
    change(cells, [[2, 0, 3], [-1, 0, 0], [4, 0, 0]]);
    expect([...cells.state]).toEqual([1, 1, 0, 1]);
    expect([...cells.revision]).toEqual([1, 1, 3, 1]);
  });
  test('new clusters have no cell', () => {
    expect([...grown(decode([[2, 1, 1]], 2), 4).state]).toEqual([1, 1, -1, -1]);
  });
  test('states and revisions are counted over targets', () => {
    const cells = decode([[2, 1, 1], [1, 0, -1], [1, -1, -1]], 4);
    expect(countStates(cells, 3)).toEqual([1, 2, 0]);
    expect(countRevisions(cells)).toEqual([{ revision: 1, count: 2 }, { revision: -1, count: 1 }]);
  });
});

describe('fleet', () => {
  test('a heartbeat moves times, and changes nothing', () => {
    const fleet = read(snapshot());
    apply(fleet, heartbeat);
    expect([fleet.cursor, fleet.asOf, fleet.changed]).toEqual(['1-1', null, 0]);
  });
  test('changes of cells are applied, counted, and told as steps', () => {
    const fleet = read(snapshot());
    const { cells, ...rest } = item('a/payments', []);
    apply(fleet, { ...heartbeat, packages: [{ ...rest, changes: [[0, 0, 1]] }] });
    const changed = fleet.packages.get('a/payments')!;
    expect([...changed.cells.state]).toEqual([0, 1, 0, -1]);
    expect([changed.counts, changed.total]).toEqual([[2, 1, 0], 3]);
    expect(fleet.steps).toEqual([
      { at: '2026-01-01T00:00:03Z', kind: 'cell', key: 'a/payments', cluster: 'eu-10', from: 'Healthy', to: 'Failed' },
    ]);
  });
  test('a cluster that is excused is shown and does not count', () => {
    const payments = { ...item('a/payments', [[2, 1, 1], [1, 0, 1], [1, -1, -1]]), excused: [{ reason: 'repair', clusters: [2, 3, 9] }] };
    const fleet = read(snapshot({ packages: [payments] }));
    const shown = fleet.packages.get('a/payments')!;
    expect([shown.counts, shown.total, shown.excuses.get(2)]).toEqual([[0, 2, 0], 2, 'repair']);
    expect([...shown.cells.state]).toEqual([1, 1, 0, -1]);
    const { cells, ...rest } = item('a/payments', []);
    apply(fleet, { ...heartbeat, packages: [{ ...rest, changes: [] }] });
    const back = fleet.packages.get('a/payments')!;
    expect([back.counts, back.total, back.excuses.size]).toEqual([[1, 2, 0], 3, 0]);
  });
  test('a new package, a new cluster and what is gone', () => {
    const fleet = read(snapshot());
    const { cells, ...rest } = item('c/new', []);
    apply(fleet, {
      ...heartbeat,
      clusters: [{ index: 4, name: 'us-2' }],
      packages: [{ ...rest, changes: [[4, 1, 0]] }],
      gone: { packages: ['b/search'] },
    });
    expect([...fleet.packages.keys()]).toEqual(['a/payments', 'c/new']);
    expect([...fleet.packages.get('c/new')!.cells.state]).toEqual([-1, -1, -1, -1, 1]);
    expect(fleet.packages.get('a/payments')!.cells.state.length).toBe(5);
    expect(fleet.steps).toEqual([]);
  });
  test('a gate that opens is a step', () => {
    const fleet = read(snapshot({ gates: [gate('wave-1')] }));
    apply(fleet, { ...heartbeat, gates: [gate('wave-1', [], 'Open')] });
    expect(fleet.steps).toMatchObject([{ kind: 'gate', key: 'a/wave-1', from: 'Waiting', to: 'Open' }]);
  });
});

describe('filter', () => {
  const none: Filter = {
    namespace: '', package: '', cluster: '', labels: [], states: [], revision: '', group: '', order: 'name',
  };
  const names = (filter: Partial<Filter>) => {
    const fleet = read(snapshot());
    const shown = view(fleet, { ...none, ...filter });
    return [shown.packages.map((it) => it.key), shown.clusters.map((it) => fleet.clusters[it]!.name)];
  };
  const [payments, searching] = ['a/payments', 'b/search'];
  test.each<[string, Partial<Filter>, string[], string[]]>([
    ['nothing', {}, [payments, searching], ['eu-9', 'eu-10', 'lab', 'us-1']],
    ['namespace', { namespace: 'b' }, [searching], ['eu-9', 'eu-10', 'lab', 'us-1']],
    ['package', { package: 'PAY' }, [payments], ['eu-9', 'eu-10', 'lab', 'us-1']],
    ['cluster', { cluster: 'EU' }, [payments, searching], ['eu-9', 'eu-10']],
    ['label', { labels: ['region=us'] }, [payments, searching], ['us-1']],
    ['state', { states: ['Failed'] }, [payments], ['us-1']],
    ['states', { states: ['Failed', 'NotUpdated'] }, [payments, searching], ['eu-10', 'us-1']],
    ['wanted', { revision: 'wanted', package: 'pay' }, [payments], ['eu-9', 'eu-10', 'us-1']],
    ['other', { revision: 'other' }, [searching], ['eu-10']],
    ['revision', { revision: 'r1' }, [searching], ['eu-10']],
    ['no such state', { states: ['Nonsense'] }, [], []],
    ['trouble', { order: 'trouble' }, [payments, searching], ['us-1', 'eu-10', 'eu-9', 'lab']],
  ])('by %s', (_, filter, packages, clusters) => {
    expect(names(filter)).toEqual([packages, clusters]);
  });
  test('groups stand beside each other, those without the label last', () => {
    const { groups, counts } = view(read(snapshot()), { ...none, group: 'region' });
    expect(groups).toEqual([
      { name: 'eu', from: 0, to: 2 },
      { name: 'us', from: 2, to: 3 },
      { name: 'no label', from: 3, to: 4 },
    ]);
    expect(counts).toEqual([1, 5, 1]);
  });
  test('a cluster that is excused is no trouble', () => {
    const failed = item('a/payments', [[2, 1, 1], [1, 0, 1], [1, -1, -1]]);
    const first = (excused: number[]) => {
      const packages = [{ ...failed, excused: [{ reason: 'repair', clusters: excused }] }];
      return view(read(snapshot({ packages })), { ...none, order: 'trouble' }).clusters[0];
    };
    expect([first([]), first([2])]).toEqual([2, 1]);
  });
  test('states are counted whichever are chosen', () => {
    expect(view(read(snapshot()), { ...none, states: ['Failed'], labels: ['region=us'] }).counts).toEqual([1, 1, 0]);
  });
});

describe('waves', () => {
  const order = (gates: Gate[], before = new Map<string, string>()) => waves(gates, before).map(({ number, gates: own }) => [number, own.map((it) => it.metadata.name)]);
  test('a gate comes after all that it depends on', () => {
    const all = [gate('ap', ['us', 'eu']), gate('eu', ['canary']), gate('us', ['canary']), gate('canary')];
    expect(order(all)).toEqual([[1, ['canary']], [2, ['eu', 'us']], [3, ['ap']]]);
  });
  test('the gate of a rollout comes after that of the wave before', () => {
    const before = new Map([['a/eu', 'a/canary'], ['a/us', 'a/eu']]);
    expect(order([gate('eu'), gate('us'), gate('canary')], before)).toEqual([[1, ['canary']], [2, ['eu']], [3, ['us']]]);
    expect(order([gate('eu'), gate('us')], before)).toEqual([[1, ['eu']], [2, ['us']]]);
  });
  test('a gate of another package, or none, holds up no wave', () => {
    expect(order([gate('eu', ['elsewhere'])])).toEqual([[1, ['eu']]]);
  });
  test('a circle comes last, with what waits for it', () => {
    const all = [gate('a', ['b']), gate('b', ['a']), gate('c', ['b']), gate('d')];
    expect(order(all)).toEqual([[1, ['d']], [0, ['a', 'b', 'c']]]);
  });
  test('gates belong to the package that they name', () => {
    const found = byPackage([gate('wave-10'), gate('wave-2'), gate('x', [], 'Open', 'search')]);
    expect([...found].map(([key, own]) => [key, own.map((it) => it.metadata.name)])).toEqual([
      ['a/payments', ['wave-2', 'wave-10']],
      ['a/search', ['x']],
    ]);
  });
});

describe('clusters of a gate', () => {
  const eu = { name: 'eu-1', labels: { region: 'eu', env: 'prod' } };
  test.each([
    [{ names: ['eu-1'] }, true],
    [{ names: ['eu-2'] }, false],
    [{ reporting: {} }, true],
    [{}, false],
    [{ selector: {} }, true],
    [{ selector: { matchLabels: { region: 'eu' } } }, true],
    [{ selector: { matchLabels: { region: 'us' } } }, false],
    [{ selector: { matchExpressions: [{ key: 'region', operator: 'In', values: ['eu', 'us'] }] } }, true],
    [{ selector: { matchExpressions: [{ key: 'region', operator: 'NotIn', values: ['eu'] }] } }, false],
    [{ selector: { matchExpressions: [{ key: 'tier', operator: 'NotIn', values: ['x'] }] } }, true],
    [{ selector: { matchExpressions: [{ key: 'tier', operator: 'Exists' }] } }, false],
    [{ selector: { matchExpressions: [{ key: 'tier', operator: 'DoesNotExist' }] } }, true],
    [{ selector: { matchExpressions: [{ key: 'region', operator: 'Like', values: ['eu'] }] } }, false],
  ])('%j', (set, expected) => {
    expect(membership(set)(eu)).toBe(expected);
  });
  test('a gate that freezes its clusters keeps to those that it was judged by', () => {
    const clusters = { selector: {}, freeze: true };
    const members = { of: 'x', since: '2026-01-01T00:00:00Z', clusters: ['eu-2'] };
    const frozen = { ...gate('g'), status: { observedGeneration: 1, members } };
    frozen.spec.clusters = clusters;
    expect(clustersOf(frozen)).toEqual({ names: ['eu-2'] });
    expect(clustersOf({ ...frozen, status: { observedGeneration: 0, members } })).toBe(clusters);
    expect(clustersOf({ ...frozen, status: null })).toBe(clusters);
  });
  // The same table as `need_and_budget` of the aggregator goes by.
  test.each([
    [{}, 10, 10, 0],
    [{ maxFailures: 2 }, 10, 8, 2],
    [{ maxFailures: '25%' }, 10, 8, 2],
    [{ minHealthy: '95%' }, 30, 29, 0],
    [{ minHealthy: 3, maxFailures: '10%' }, 30, 3, 3],
    [{ maxFailures: '100%' }, 4, 1, 4],
    [{}, 0, 1, 0],
  ])('%j of %i', (terms, total, need, budget) => {
    expect(needAndBudget(terms, total)).toEqual({ need, budget });
  });
});

describe('times', () => {
  test.each([['90s', 90], ['3m', 180], ['1h30m', 5400], ['1h0m1s', 3601], ['', 0], ['3', 0], ['1s1m', 0], [undefined, 0]])(
    '%s is a duration of %i s',
    (text, expected) => expect(seconds(text)).toBe(expected),
  );
  test.each([[0, '0s'], [59.4, '59s'], [59.6, '1m'], [200, '3m 20s'], [3600, '1h'], [5400, '1h 30m'], [90_000, '1d 1h'], [-5, '0s']])(
    '%d s are %s',
    (duration, expected) => expect(span(duration)).toBe(expected),
  );
  test('the clock tells the day when it is another', () => {
    const now = new Date(2026, 0, 2, 12, 0, 0).getTime() / 1000;
    expect([clock(now - 60, now), clock(now - 86_400, now)]).toEqual(['11:59:00', '2026-01-01 12:00']);
  });
  test('a soak runs to the time that the status says', () => {
    const until = '2026-01-01T00:10:00Z';
    const end = Date.parse(until) / 1000;
    expect(soakBar(until, '10m', end - 150)).toEqual({ done: 0.75, left: 150, whole: 600 });
    expect(soakBar(until, '10m', end + 5)).toEqual({ done: 1, left: 0, whole: 600 });
    expect(soakBar(until, '10m', end - 6000)).toEqual({ done: 0, left: 600, whole: 600 });
    expect([soakBar(undefined, '10m', 0), soakBar(until, undefined, 0)]).toEqual([null, null]);
  });
  test('a deadline runs from the time that the gate was first judged', () => {
    const start = '2026-01-01T00:00:00Z';
    const at = Date.parse(start) / 1000;
    expect(deadlineBar(start, '1h', at + 900)).toEqual({ done: 0.25, left: 2700, whole: 3600 });
    expect(deadlineBar(start, undefined, at)).toBeNull();
  });
});

describe('words', () => {
  test.each([
    ['main@sha1:60303ae22b998861bce3b28f33eec1be758a213c', 'main@60303ae'],
    ['sha256:60303ae22b998861bce3b28f33eec1be758a213c', '60303ae22b99'],
    ['60303ae22b99', '60303ae22b99'],
    ['v1.2.3', 'v1.2.3'],
    ['', '–'],
    [null, '–'],
    ['a-very-long-version-that-nobody-can-read-in-a-table', 'a-very-long-vers…-a-table'],
  ])('%s is shown as %s', (revision, expected) => expect(short(revision)).toBe(expected));
  test('only all is 100%', () => {
    expect([share(9999, 10_000), share(10_000, 10_000), share(0, 0)]).toEqual(['99.9%', '100.0%', '–']);
  });
  test('clusters are found within a message, whole names only', () => {
    expect(namesIn('2 failed: eu-1 (X), eu-10', ['eu-1', 'eu-10'])).toEqual(['2 failed: ', 'eu-1', ' (X), ', 'eu-10', '']);
    expect(namesIn('in eu-100 and a.b', ['eu-1', 'a.b'])).toEqual(['in eu-100 and ', 'a.b', '']);
    expect(namesIn('nothing', [])).toEqual(['nothing']);
  });
});

test('each state has a letter of its own', () => {
  const letters = ORDER.map((word) => look(word).letter);
  expect(new Set(letters).size).toBe(letters.length);
  expect(letters).not.toContain(look('of a later version').letter);
});

test('parts of a gate add up to its clusters', () => {
  const counts = { total: 12, healthy: 5, progressing: 4, soaking: 3, failed: 2, timedOut: 1, stale: 1 };
  const parts = gateParts(counts);
  expect(parts.map(({ name, count }) => [name, count])).toEqual([
    ['healthy', 5], ['soaking', 3], ['progressing', 1], ['failed', 2], ['stale', 1],
  ]);
  expect(parts.reduce((sum, { count }) => sum + count, 0)).toBe(12);
});

test('what begins with the text is found first', () => {
  const fleet = read(snapshot({ gates: [gate('us-wave')] }));
  expect(search(fleet, 'us', 9).map(({ kind, name }) => `${kind} ${name}`)).toEqual(['cluster us-1', 'gate a/us-wave']);
  expect(search(fleet, ' ', 9)).toEqual([]);
});
