// Fleets to look at: one that tells a story, and one of any size.

import { FleetServer } from './server.mjs';

/** In the order of the aggregator's enum. */
export const STATES = ['Failed', 'TimeOut', 'Conflict', 'ClockSkew', 'Unverified', 'BackendUnavailable', 'Stale', 'Missing', 'Superseded', 'NotUpdated', 'Paused', 'Deleting', 'HealthUnknown', 'Progressing', 'Soaking', 'Healthy'];

const number = (/** @type {string} */ word) => STATES.indexOf(word);

/** Numbers from 0 to 1 that are the same each time. @param {number} seed */
export function random(seed) {
  let at = seed;
  return () => {
    at = (at * 1664525 + 1013904223) % 4294967296;
    return at / 4294967296;
  };
}

export const ago = (/** @type {number} */ seconds) => new Date(Date.now() - seconds * 1000).toISOString();

export const R1 = 'main@sha1:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b';
export const R2 = 'main@sha1:60303ae22b998861bce3b28f33eec1be758a213c';

/** @type {[string, string, number][]} Region, prefix, clusters. */
const REGIONS = [['ap-south', 'ap', 9], ['eu-central', 'euc', 14], ['eu-west', 'euw', 13], ['us-east', 'us', 16]];

/** Gate, clusters by label `wave`, dependencies. */
const WAVES = ['canary', 'eu', 'us', 'ap'];

/** Seconds that a cluster has to be healthy. */
const SOAK = 600;

const lastSoak = (/** @type {string[]} */ since) => new Date(Math.max(0, ...since.map(Date.parse)) + SOAK * 1000).toISOString();

/** @param {FleetServer} server @param {string} name */
export function judge(server, name) {
  const key = `team-a/${name}`;
  const old = server.gates.get(key);
  const { spec } = old;
  const cells = /** @type {import('./server.mjs').Cells} */ (server.cells.get('team-a/payments'));
  const own = server.clusters.map((_, at) => at).filter((at) => spec.clusters.names.includes(server.clusters[at]?.name));
  /** What a cluster counts as for the gate: a FleetPackage knows no soak. */
  const countsAs = (/** @type {number} */ at) => {
    const word = STATES[cells.state[at] ?? -1];
    return word === 'Healthy' && Date.parse(cells.since[at] ?? '') > Date.now() - SOAK * 1000 ? 'Soaking' : word;
  };
  const by = (/** @type {string} */ word) => own.filter((at) => countsAs(at) === word);
  const counts = {
    total: own.length, healthy: by('Healthy').length, soaking: by('Soaking').length,
    progressing: by('Progressing').length + by('Soaking').length + by('NotUpdated').length + by('Paused').length,
    failed: by('Failed').length, stale: by('Stale').length, missing: by('Missing').length,
  };
  const dependencies = (spec.dependsOn ?? []).filter((/** @type {any} */ it) => !server.gates.get(`team-a/${it.name}`).verdict.open);
  const names = (/** @type {number[]} */ places) => places.map((at) => server.clusters[at]?.name ?? '');
  /** @type {any[]} */
  const waitingFor = [];
  const entry = (/** @type {string} */ reason, /** @type {string} */ text, /** @type {number[]} */ places, /** @type {any} */ more = {}) => {
    if (places.length > 0) waitingFor.push({ reason, message: `${places.length} ${places.length === 1 ? 'cluster' : 'clusters'} ${text}: ${names(places).slice(0, 3).join(', ')}${places.length > 3 ? ', …' : ''}`, count: places.length, clusters: names(places).slice(0, 10), ...more });
  };
  if (counts.failed > 0) entry('FailureBudgetExceeded', 'failed, 0 allowed', by('Failed'));
  for (const other of dependencies) waitingFor.push({ reason: 'DependencyNotOpen', message: `gate ${other.name} is not open`, count: 0 });
  entry('Stale', 'not heard from in time', by('Stale'));
  entry('Progressing', 'in progress', by('Progressing'));
  entry('NotUpdated', 'not at the revision yet', by('NotUpdated'));
  entry('Soaking', 'healthy, but not for long enough yet', by('Soaking'), { until: lastSoak(by('Soaking').map((at) => cells.since[at] ?? '')) });
  const open = waitingFor.length === 0;
  const stalled = counts.failed > 0;
  const state = open ? 'Open' : stalled ? 'Stalled' : 'Waiting';
  const message = open ? `${counts.healthy} of ${counts.total} clusters healthy at the revision` : waitingFor[0].message;
  const reason = open ? 'Healthy' : waitingFor[0].reason;
  const since = old.verdict?.state === state ? old.verdict.since : ago(0);
  const condition = (/** @type {string} */ type, /** @type {boolean} */ status) => ({ type, status: status ? 'True' : 'False', reason, message, lastTransitionTime: since, observedGeneration: 3 });
  const status = {
    observedGeneration: 3, asOf: server.asOf, startedAt: ago(1500), since, revision: R2, healthy: `${counts.healthy}/${counts.total}`,
    clusters: counts, waitingFor, conditions: [condition('Ready', open), condition('Open', open), ...(stalled ? [condition('Stalled', true)] : [])],
    ...(spec.checks ? { checks: [{ name: 'error-rate', state: open ? 'Passed' : 'Pending', ...(open ? { value: '0.0021' } : { message: 'the clusters have not been at the revision for 5m' }) }] } : {}),
  };
  const verdict = { open, state, reason, message, namespace: 'team-a', name, revision: R2, fingerprint: '60303ae22b99', generation: 3, observedGeneration: 3, succeeded: open, asOf: server.asOf, ageSeconds: 2, staleAfterSeconds: 180, since, healthy: status.healthy, clusters: counts, waitingFor };
  server.setGate({ metadata: old.metadata, spec, status, verdict });
}

/** How far the FleetRollout of payments is, by its gates. @param {FleetServer} server @param {Partial<import('../app/model/api').Rollout>} [more] */
export function rollOut(server, more = {}) {
  let goesOn = true;
  const waves = WAVES.map((name) => {
    const { spec, status, verdict } = server.gates.get(`team-a/payments-${name}`);
    const clusters = spec.clusters.names.length;
    if (!goesOn) return { name, state: 'Pending', clusters, admitted: 0, message: undefined };
    const state = verdict.open ? 'Open' : verdict.state === 'Stalled' ? 'Failed' : 'Progressing';
    goesOn = verdict.open;
    /** @type {string | undefined} */
    const message = verdict.open ? undefined : status.waitingFor[0].message;
    return { name, state, gate: `payments-${name}`, clusters, admitted: clusters, startedAt: ago(1500), ...(verdict.open ? { openedAt: ago(900) } : {}), message };
  });
  const started = waves.findLastIndex((wave) => wave.state !== 'Pending');
  const [wave, last] = [waves.find((it) => it.state !== 'Open'), waves[started]];
  const stalled = wave?.state === 'Failed';
  const [total, admitted] = [waves, waves.filter((it) => it.state !== 'Pending')].map((all) => all.reduce((sum, it) => sum + it.clusters, 0));
  const message = wave ? `wave ${wave.name} (${waves.indexOf(wave) + 1} of ${waves.length}), ${wave.admitted} of ${wave.clusters} admitted: ${wave.message}` : `all ${total} clusters admitted`;
  server.setRollout({
    metadata: { namespace: 'team-a', name: 'payments', generation: 2, labels: {} },
    package: 'payments',
    paused: false, ready: !wave, stalled, reason: !wave ? 'RolledOut' : stalled ? 'WaveFailed' : 'RollingOut', message,
    status: {
      observedGeneration: 2, asOf: server.asOf, verdictSince: ago(60), revision: R2, fingerprint: '60303ae22b99', startedAt: ago(1500),
      wave: `${last?.name} (${started + 1}/${waves.length})`, admitted: `${admitted}/${total}`, clusters: { total: total ?? 0, admitted: admitted ?? 0, leftOut: 0 }, waves,
      previous: { revision: R1, startedAt: ago(180_000), completedAt: ago(175_000), replacedAt: ago(1500), admitted: '52/52', wave: 'ap (4/4)' },
      lastCompletedRevision: R1, ...(stalled ? { recommendedRevision: R1 } : {}),
    },
    ...more,
  });
}

/** A fleet of 52 clusters: payments is on its way through its waves, a few others are in trouble. */
export function story() {
  const clusters = REGIONS.flatMap(([region, prefix, count]) =>
    Array.from({ length: count }, (_, at) => {
      const isCanary = at === 0 && (prefix === 'euc' || prefix === 'us');
      const env = isCanary ? 'canary' : at < 3 ? 'staging' : 'prod';
      return { name: `${prefix}-${at + 1}`, labels: { env, region, wave: isCanary ? 'canary' : prefix.slice(0, 2) } };
    }),
  );
  const server = new FleetServer({ states: STATES, clusters });
  /** @type {[string, string, string][]} */
  const packages = [
    ['data', 'kafka', 'flux-helmrelease'], ['data', 'postgres-operator', 'flux-helmrelease'], ['platform', 'cert-manager', 'flux-helmrelease'],
    ['platform', 'external-dns', 'flux-kustomization'], ['platform', 'ingress-nginx', 'flux-helmrelease'], ['platform', 'kyverno', 'flux-helmrelease'],
    ['platform', 'otel-collector', 'flux-kustomization'], ['team-a', 'checkout', 'argocd-application'], ['team-a', 'ledger', 'flux-kustomization'],
    ['team-a', 'payments', 'flux-kustomization'], ['team-b', 'catalog', 'argocd-application'], ['team-b', 'recommendations', 'argocd-application'], ['team-b', 'search', 'argocd-application'],
  ];
  const next = random(7);
  for (const [namespace, name, source] of packages) {
    const isOurs = name === 'payments';
    const revisions = isOurs ? [R1, R2] : [`v1.${Math.floor(next() * 30)}.0`, 'v1.4.2', `0e${Math.floor(next() * 1e10).toString(16).padStart(10, '0').slice(0, 10)}`];
    const targets = clusters.map(({ labels }) => namespace !== 'team-b' || labels.region !== 'ap-south');
    const state = clusters.map(({ labels }, at) => {
      if (!targets[at]) return -1;
      if (!isOurs) return number(next() < 0.975 ? 'Healthy' : next() < 0.5 ? 'Progressing' : next() < 0.5 ? 'Failed' : 'NotUpdated');
      if (labels.wave === 'canary') return number('Healthy');
      if (labels.wave === 'eu') return number(at % 9 === 4 ? 'Progressing' : 'Healthy');
      return number('NotUpdated');
    });
    if (name === 'kyverno') clusters.forEach(({ name: cluster }, at) => { if (/^ap-[4-8]$/.test(cluster)) state[at] = number('Stale'); });
    if (name === 'kafka') clusters.forEach(({ name: cluster }, at) => { if (/^us-(3|9)$/.test(cluster)) state[at] = number('Unverified'); });
    if (name === 'catalog') clusters.forEach(({ labels }, at) => { if (labels.region === 'us-east') state[at] = number('Paused'); });
    const revision = state.map((own) => (own < 0 ? -1 : isOurs ? (own === number('NotUpdated') ? 0 : 1) : next() < 0.97 ? 0 : 1));
    const reason = Object.fromEntries(state.flatMap((own, at) => (own === number('Failed') ? [[at, 'HealthCheckFailed']] : own === number('Paused') ? [[at, 'Suspended']] : [])));
    const healthy = state.filter((own) => own === number('Healthy')).length;
    const total = state.filter((own) => own >= 0).length;
    const isReady = healthy === total;
    const worst = STATES.find((word) => state.includes(number(word))) ?? 'Healthy';
    const condition = { type: 'Ready', status: isReady ? 'True' : 'False', reason: worst, message: isReady ? `${total} clusters healthy at the revision` : `${total - healthy} of ${total} clusters are not healthy at the revision`, lastTransitionTime: ago(700), observedGeneration: 4 };
    const wanted = isOurs ? R2 : (revisions[0] ?? null);
    server.addPackage(
      {
        metadata: { namespace, name, generation: 4, labels: {} },
        spec: { package: { source, namespace: 'flux-system', name }, revision: wanted, clusters: { reporting: { minClusters: 1 } }, staleAfter: '3m' },
        status: {
          observedGeneration: 4, asOf: ago(4), revision: wanted, lastHealthyRevision: isOurs ? R1 : wanted, conditions: [condition],
          history: isOurs ? [{ revision: R2, startedAt: ago(1500) }, { revision: R1, startedAt: ago(180_000), appliedAt: ago(176_000), healthyAt: ago(175_000) }] : [],
        },
        wanted,
        revisions,
        adoption: { revision: wanted, points: Array.from({ length: isOurs ? healthy : 1 }, (_, at) => [ago(1400 - Math.floor(1300 * Math.sqrt(at / Math.max(1, healthy)))), isOurs ? at + 1 : healthy]) },
      },
      { state, revision, reason, since: Object.fromEntries(state.map((_, at) => [at, ago(isOurs && at % 5 === 1 && clusters[at]?.labels.wave === 'eu' ? 240 + at * 6 : 700 + Math.floor(next() * 9000))])) },
    );
  }
  WAVES.forEach((wave, at) => {
    const dependsOn = at === 0 ? [] : [{ name: `payments-${WAVES[at - 1]}` }];
    server.setGate({
      metadata: { namespace: 'team-a', name: `payments-${wave}`, generation: 3, labels: {} },
      spec: { fleetPackageRef: { name: 'payments' }, revision: R2, clusters: { names: clusters.filter((it) => it.labels.wave === wave).map((it) => it.name) }, minSuccessTime: '10m', progressDeadline: '1h', dependsOn, ...(wave === 'canary' ? { checks: [{ name: 'error-rate', query: 'sum(rate(errors[5m]))', max: 0.01, window: '5m' }] } : {}) },
      status: null,
      verdict: { open: false, state: 'NotJudged', reason: 'Pending', message: '', since: ago(900 - at * 100) },
    });
  });
  for (const wave of WAVES) judge(server, `payments-${wave}`);
  for (const [namespace, name] of [['platform', 'kyverno'], ['team-b', 'catalog'], ['team-b', 'search']]) {
    const isOpen = name === 'search';
    const state = isOpen ? 'Open' : name === 'kyverno' ? 'Stale' : 'Waiting';
    server.setGate({
      metadata: { namespace, name: `${name}-prod`, generation: 1, labels: {} },
      spec: { fleetPackageRef: { name }, revision: server.packages.get(`${namespace}/${name}`).wanted, clusters: { selector: { matchLabels: { env: 'prod' } } } },
      status: { observedGeneration: 1, conditions: [], clusters: { total: 30, healthy: isOpen ? 30 : 22, progressing: isOpen ? 0 : 8 } },
      verdict: { open: isOpen, state, reason: state, message: isOpen ? '30 of 30 clusters healthy at the revision' : '8 clusters in progress', since: ago(5000), staleAfterSeconds: 180, asOf: ago(4) },
    });
  }
  rollOut(server);
  server.setRollout({ metadata: { namespace: 'team-b', name: 'search', generation: 1 }, package: 'search', paused: false, ready: true, stalled: false, reason: 'RolledOut', message: 'all 43 clusters admitted, the gates of all 2 waves were open' });
  server.pendingGates.clear();
  server.pendingRollouts.clear();
  return server;
}

/** One package with a cluster in each state. */
export function everyState() {
  const clusters = STATES.map((word, at) => ({ name: `${String(at).padStart(2, '0')}-${word}` }));
  const server = new FleetServer({ states: STATES, clusters });
  server.addPackage(
    { metadata: { namespace: 'a', name: 'p' }, spec: { package: { source: 'x', name: 'p' } }, wanted: 'r', revisions: ['r'] },
    { state: STATES.map((_, at) => at), revision: STATES.map(() => 0) },
  );
  return server;
}

/** A rollout of the first package in so many waves, of which the first half is done. @param {FleetServer} server @param {number} waveCount */
export function inWaves(server, waveCount) {
  const [key, item] = /** @type {[string, any]} */ ([...server.packages][0]);
  const { namespace, name } = item.metadata;
  const size = server.clusters.length / waveCount;
  const waves = Array.from({ length: waveCount }, (_, at) => {
    const wave = `wave-${at + 1}`;
    const state = at * 2 < waveCount ? 'Open' : at * 2 === waveCount ? 'Progressing' : 'Pending';
    if (state === 'Pending') return { name: wave, state, clusters: size, admitted: 0 };
    const names = server.clusters.slice(at * size, (at + 1) * size).map((it) => it.name);
    const open = state === 'Open';
    server.setGate({
      metadata: { namespace, name: `${name}-${wave}`, generation: 1 },
      spec: { fleetPackageRef: { name }, revision: item.wanted, clusters: { names } },
      status: { observedGeneration: 1, clusters: { total: size, healthy: open ? size : size / 2, progressing: open ? 0 : size / 2 }, waitingFor: [] },
      verdict: { open, state: open ? 'Open' : 'Waiting', reason: 'Progressing', message: 'clusters in progress' },
    });
    return { name: wave, state, gate: `${name}-${wave}`, clusters: size, admitted: open ? size : size / 2, startedAt: ago(900) };
  });
  server.setRollout({
    metadata: { namespace, name, generation: 1 }, package: name, paused: false, ready: false, stalled: false, reason: 'RollingOut', message: 'on its way',
    status: { revision: item.wanted, wave: `wave-${waveCount / 2} (${waveCount / 2}/${waveCount})`, admitted: '0/0', clusters: { total: server.clusters.length, admitted: 0, leftOut: 0 }, waves },
  });
  return key;
}

/** A fleet of any size, mostly healthy. @param {number} clusterCount @param {number} packageCount */
export function generated(clusterCount, packageCount) {
  const next = random(1);
  const regions = ['ap-1', 'ap-2', 'eu-1', 'eu-2', 'eu-3', 'us-1', 'us-2', 'us-3'];
  const clusters = Array.from({ length: clusterCount }, (_, at) => ({
    name: `edge-${String(at).padStart(5, '0')}`,
    labels: { region: regions[at % regions.length] ?? '', tier: at % 10 === 0 ? 'canary' : 'prod' },
  }));
  const server = new FleetServer({ states: STATES, clusters });
  const odd = ['Failed', 'Stale', 'Progressing', 'NotUpdated', 'Missing'].map(number);
  for (let at = 0; at < packageCount; at += 1) {
    const wanted = `v2.${at}.0`;
    const state = clusters.map(() => (next() < 0.97 ? number('Healthy') : (odd[Math.floor(next() * odd.length)] ?? 0)));
    server.addPackage(
      {
        metadata: { namespace: `team-${at % 12}`, name: `package-${String(at).padStart(3, '0')}`, generation: 1 },
        spec: { package: { source: 'flux-kustomization', name: `package-${at}` }, revision: wanted },
        status: null,
        wanted,
        revisions: [wanted, `v1.${at}.0`],
      },
      { state, revision: state.map((own) => (own === number('NotUpdated') ? 1 : 0)) },
    );
    server.setGate({
      metadata: { namespace: `team-${at % 12}`, name: `gate-${at}`, generation: 1 },
      spec: { fleetPackageRef: { name: `package-${String(at).padStart(3, '0')}` }, revision: wanted, clusters: { reporting: {} } },
      status: null,
      verdict: { open: at % 3 === 0, state: at % 3 === 0 ? 'Open' : 'Waiting', reason: 'Progressing', message: 'clusters in progress' },
    });
  }
  server.pendingGates.clear();
  return server;
}
