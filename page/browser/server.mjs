// A small server with the API that the page reads, for tests and pictures. It serves the built page with the headers of
// the crate, and a fleet that a test changes as it likes.

import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';

const root = new URL('..', import.meta.url);

/** The headers as `src/lib.rs` has them. */
export function headers() {
  const source = readFileSync(new URL('src/lib.rs', root), 'utf8').replace(/\\\n\s*/g, '');
  const list = /const HEADERS[^=]*= \[(.*?)\n\];/s.exec(source)?.[1] ?? '';
  const pairs = [...list.matchAll(/\(\s*"([a-z-]+)",\s*"([^"]*)",?\s*\)/g)].map((pair) => [pair[1], pair[2]]);
  if (pairs.length !== 4) throw new Error(`src/lib.rs has headers that this server cannot read: ${list}`);
  return Object.fromEntries(pairs);
}

/** @type {Record<string, string>} */
const TYPES = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml' };

/** @param {number[]} state @param {number[]} revision */
function runs(state, revision) {
  /** @type {[number, number, number][]} */
  const found = [];
  state.forEach((own, at) => {
    const last = found.at(-1);
    if (last && last[1] === own && last[2] === revision[at]) last[0] += 1;
    else found.push([1, own, revision[at] ?? -1]);
  });
  return found;
}

/**
 * @typedef {{ state: number[], revision: number[], reason: Record<number, string>, since: Record<number, string> }} Cells
 */

export class FleetServer {
  /**
   * @param {{ states: string[], clusters: import('../app/model/api').Cluster[] }} fleet
   */
  constructor({ states, clusters }) {
    this.states = states;
    this.clusters = clusters;
    /** @type {Map<string, any>} */
    this.packages = new Map();
    /** @type {Map<string, Cells>} */
    this.cells = new Map();
    /** @type {Map<string, any>} */
    this.gates = new Map();
    /** @type {Map<string, any>} */
    this.rollouts = new Map();
    /** @type {string | null} */
    this.silent = null;
    /** @type {number | null} The time that every picture is from, once the server makes no new ones. */
    this.frozen = null;
    /** Seconds by which the newest evidence is old. */
    this.lag = 2;
    /** @type {string | null} */
    this.token = null;
    /** @type {string | null} The namespace that the token's owner may see; null: all. */
    this.onlyNamespace = null;
    this.refuses = false;
    this.epoch = 1;
    this.count = 0;
    /** @type {Map<string, [number, number, number][]>} */
    this.encoded = new Map();
    /** @type {{ at: number, event: any }[]} */
    this.log = [];
    /** @type {Set<import('node:http').ServerResponse>} */
    this.streams = new Set();
    /** @type {string[]} */
    this.requests = [];
    /** @type {Map<string, Map<number, [number, number, number]>>} */
    this.pending = new Map();
    /** @type {Set<string>} */
    this.pendingGates = new Set();
    /** @type {Set<string>} */
    this.pendingRollouts = new Set();
    this.server = createServer((request, response) => this.answer(request, response));
    /** @type {ReturnType<typeof setInterval> | undefined} */
    this.timer = undefined;
  }

  async listen() {
    await new Promise((done) => this.server.listen(0, '127.0.0.1', () => done(null)));
    this.timer = setInterval(() => this.send(this.event()), 1000);
    const address = /** @type {import('node:net').AddressInfo} */ (this.server.address());
    this.url = `http://127.0.0.1:${address.port}/ui/`;
    return this.url;
  }

  async close() {
    clearInterval(this.timer);
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(() => done(null)));
  }

  get asOf() {
    return new Date((this.frozen ?? Date.now()) - this.lag * 1000).toISOString();
  }

  /** @param {any} object @param {Partial<Cells>} cells */
  addPackage(object, cells) {
    const key = `${object.metadata.namespace}/${object.metadata.name}`;
    const none = this.clusters.map(() => -1);
    this.packages.set(key, { status: null, wanted: null, revisions: [], ...object });
    this.cells.set(key, { state: none, revision: [...none], reason: {}, since: {}, ...cells });
  }

  /** @param {any} gate */
  setGate(gate) {
    const key = `${gate.metadata.namespace}/${gate.metadata.name}`;
    this.gates.set(key, gate);
    this.pendingGates.add(key);
  }

  /** @param {import('../app/model/api').Rollout} rollout */
  setRollout(rollout) {
    const key = `${rollout.metadata.namespace}/${rollout.metadata.name}`;
    this.rollouts.set(key, rollout);
    this.pendingRollouts.add(key);
  }

  /** @param {string} key @param {string} cluster @param {string} reason */
  excuse(key, cluster, reason) {
    const at = this.clusters.findIndex((it) => it.name === cluster);
    const item = this.packages.get(key);
    item.excused = [...(item.excused ?? []), { reason, clusters: [at] }];
    item.status = { ...item.status, clusters: { excused: 1 }, excused: [{ clusterName: cluster, reason }] };
    if (!this.pending.has(key)) this.pending.set(key, new Map());
  }

  /** @param {string} key @param {string} cluster @param {string} state @param {string} revision @param {{ reason?: string, since?: string }} [more] */
  setCell(key, cluster, state, revision, { reason, since = new Date().toISOString() } = {}) {
    const at = this.clusters.findIndex((it) => it.name === cluster);
    const cells = /** @type {Cells} */ (this.cells.get(key));
    const item = this.packages.get(key);
    if (!item.revisions.includes(revision)) item.revisions.push(revision);
    cells.state[at] = this.states.indexOf(state);
    cells.revision[at] = item.revisions.indexOf(revision);
    cells.since[at] = since;
    if (reason) cells.reason[at] = reason;
    else delete cells.reason[at];
    this.encoded.delete(key);
    const changes = this.pending.get(key) ?? new Map();
    this.pending.set(key, changes.set(at, [at, cells.state[at], cells.revision[at]]));
  }

  event() {
    return { cursor: `${this.epoch}-${this.count}`, asOf: this.asOf, evaluatedAt: new Date(this.frozen ?? Date.now()).toISOString(), silent: this.silent };
  }

  /** Sends all that was changed since the last time. */
  commit() {
    this.count += 1;
    const packages = [...this.pending].map(([key, changes]) => ({ ...this.packages.get(key), changes: [...changes.values()] }));
    const gates = [...this.pendingGates].map((key) => this.gates.get(key));
    const rollouts = [...this.pendingRollouts].map((key) => this.rollouts.get(key));
    const event = { ...this.event(), packages, gates, rollouts };
    this.log.push({ at: this.count, event });
    this.pending.clear();
    this.pendingGates.clear();
    this.pendingRollouts.clear();
    this.send(event);
  }

  /** @param {any} event */
  send(event) {
    for (const stream of this.streams) stream.write(`event: changes\ndata: ${JSON.stringify(event)}\n\n`);
  }

  /** Ends every connection, and refuses new ones until `accept`. */
  drop() {
    this.refuses = true;
    this.server.closeAllConnections();
  }

  accept() {
    this.refuses = false;
  }

  /** @param {string} text What is sent as it is. */
  sendRaw(text) {
    for (const stream of this.streams) stream.write(text);
  }

  /** Says no word more on the streams that there are, which stay open. */
  hang() {
    this.streams.clear();
  }

  /** Begins anew, as after a restart: no cursor of before is known. */
  restart() {
    this.epoch += 1;
    this.log = [];
    this.server.closeAllConnections();
  }

  snapshot(/** @type {string | null} */ namespace) {
    const inside = (/** @type {any} */ it) => namespace === null || it.metadata.namespace === namespace;
    const packages = [...this.packages].filter(([, it]) => inside(it)).map(([key, it]) => {
      const cells = /** @type {Cells} */ (this.cells.get(key));
      // A large fleet takes this server longer than its clients.
      const encoded = this.encoded.get(key) ?? runs(cells.state, cells.revision);
      this.encoded.set(key, encoded);
      return { ...it, cells: encoded };
    });
    const all = { states: this.states, clusters: this.clusters, packages, gates: [...this.gates.values()].filter(inside), rollouts: [...this.rollouts.values()].filter(inside) };
    // As the aggregator does it: what is empty is left out.
    return { ...this.event(), ...Object.fromEntries(Object.entries(all).filter(([, list]) => list.length > 0)) };
  }

  /** @param {string} key @param {number} at */
  row(key, at) {
    const cells = /** @type {Cells} */ (this.cells.get(key));
    const item = this.packages.get(key);
    const excused = item.excused?.find((/** @type {any} */ it) => it.clusters.includes(at))?.reason;
    const word = this.states[cells.state[at] ?? -1] ?? '';
    const known = !['Stale', 'Missing', 'Unverified', 'Conflict', 'ClockSkew', 'BackendUnavailable'].includes(word);
    const applied = item.revisions[cells.revision[at] ?? -1];
    const desired = word === 'NotUpdated' ? applied : (item.wanted ?? applied);
    return {
      row: {
        clusterName: this.clusters[at]?.name,
        status: word === 'Healthy' ? 'Succeeded' : word === 'Failed' ? 'Failed' : 'Progressing',
        state: word,
        reason: cells.reason[at] ?? word,
        ...(known ? { desiredRevision: desired, appliedRevision: applied } : {}),
        ...(word === 'Healthy' ? { healthyRevision: applied } : {}),
        lastTransitionTime: cells.since[at] ?? new Date(Date.now() - 86_400_000).toISOString(),
        ...(word === 'Failed' ? { reportedBy: 'management-1' } : {}),
        ...(excused ? { excused } : {}),
      },
      asOf: known ? this.asOf : null,
      message: known ? '' : 'the last verified word is too old',
    };
  }

  /** @param {import('node:http').IncomingMessage} request @param {import('node:http').ServerResponse} response */
  answer(request, response) {
    // A plus sign stands for itself, as in the aggregator.
    const url = new URL((request.url ?? '/').replaceAll('+', '%2B'), 'http://server');
    this.requests.push(request.url ?? '');
    if (this.refuses) {
      request.socket.destroy();
      return;
    }
    if (url.pathname.startsWith('/ui/')) {
      const name = url.pathname.slice(4) || 'index.html';
      try {
        const body = readFileSync(new URL(`dist/${name.replace(/[^a-z.]/g, '')}`, root));
        response.writeHead(200, { ...headers(), 'content-type': TYPES[name.split('.').at(-1) ?? ''], 'cache-control': 'no-cache' }).end(body);
      } catch {
        response.writeHead(404).end();
      }
      return;
    }
    const json = (/** @type {number} */ status, /** @type {unknown} */ body) =>
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    if (this.token !== null && request.headers.authorization !== `Bearer ${this.token}`) {
      return json(401, { reason: 'Unauthorized', message: request.headers.authorization ? 'the hub does not know this token' : 'a bearer token of the hub is needed' });
    }
    const namespace = url.searchParams.get('namespace');
    const parts = url.pathname.split('/').slice(1).map(decodeURIComponent);
    const [version, kind, first = '', second = ''] = parts;
    const isList = kind === 'fleet' || kind === 'clusters';
    if (isList && this.onlyNamespace !== null && namespace !== this.onlyNamespace) {
      return json(403, { reason: 'Forbidden', message: 'you may not list fleetpackages.statusbridge.dev in all namespaces' });
    }
    if (version !== 'v1alpha1') return json(404, { reason: 'NotFound', message: 'there is nothing here' });
    if (kind === 'fleet' && first === '') return json(200, this.snapshot(namespace));
    if (kind === 'fleet' && first === 'changes') return this.stream(url.searchParams.get('cursor') ?? '', response);
    if (kind === 'packages') {
      const key = `${first}/${second}`;
      const item = this.packages.get(key);
      if (!item) return json(404, { reason: 'NotFound', message: `there is no FleetPackage ${key}` });
      const limit = Number(url.searchParams.get('limit') ?? 100);
      const [state, cluster] = ['state', 'cluster'].map((name) => url.searchParams.get(name));
      const cells = /** @type {Cells} */ (this.cells.get(key));
      const places = this.clusters.map((_, at) => at).filter((at) => (cells.state[at] ?? -1) >= 0);
      const rows = places.filter((at) => (!cluster || this.clusters[at]?.name === cluster) && (!state || this.states[cells.state[at] ?? -1] === state));
      rows.sort((a, b) => this.states.indexOf('Healthy') === cells.state[a] ? 1 : this.states.indexOf('Healthy') === cells.state[b] ? -1 : a - b);
      const { metadata, spec, status, wanted, adoption } = item;
      return json(200, { metadata, spec, status, wanted, adoption, clusters: rows.slice(0, limit).map((at) => this.row(key, at)), more: rows.length > limit });
    }
    if (kind === 'rollouts') {
      const rollout = this.rollouts.get(`${first}/${second}`);
      const wave = rollout?.status?.waves?.find((/** @type {any} */ it) => it.name === url.searchParams.get('wave'));
      if (!wave) return json(404, { reason: 'NotFound', message: `there is no such FleetRollout or wave` });
      const names = wave.gate ? (this.gates.get(`${first}/${wave.gate}`)?.spec.clusters.names ?? []) : [];
      const places = this.clusters.map((_, at) => at).filter((at) => names.includes(this.clusters[at]?.name));
      const cells = /** @type {Cells} */ (this.cells.get(`${first}/${rollout.package}`));
      places.sort((a, b) => (cells.state[a] ?? 0) - (cells.state[b] ?? 0));
      const limit = Number(url.searchParams.get('limit') ?? 100);
      const waits = new Set(names.slice(wave.admitted));
      const member = (/** @type {number} */ at) => {
        const clusterName = this.clusters[at]?.name;
        return { clusterName, ...(waits.has(clusterName) ? {} : { admitted: wave.startedAt }), ...this.row(`${first}/${rollout.package}`, at) };
      };
      return json(200, { ...rollout, clusters: places.slice(0, limit).map(member), more: places.length > limit });
    }
    if (kind === 'clusters') {
      const at = this.clusters.findIndex((it) => it.name === first);
      if (at < 0) return json(404, { reason: 'NotFound', message: `there is no cluster ${first}` });
      const own = [...this.packages].filter(([key]) => (this.cells.get(key)?.state[at] ?? -1) >= 0);
      return json(200, { ...this.clusters[at], packages: own.map(([key, it]) => ({ namespace: it.metadata.namespace, name: it.metadata.name, ...this.row(key, at) })) });
    }
    return json(404, { reason: 'NotFound', message: 'there is nothing here' });
  }

  /** @param {string} cursor @param {import('node:http').ServerResponse} response */
  stream(cursor, response) {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const [epoch, count] = cursor.split('-').map(Number);
    if (epoch !== this.epoch) {
      response.end(`event: reset\ndata: ${JSON.stringify({ message: 'the aggregator was restarted' })}\n\n`);
      return;
    }
    for (const { at, event } of this.log) {
      if (at > (count ?? 0)) response.write(`event: changes\ndata: ${JSON.stringify(event)}\n\n`);
    }
    response.write(`event: changes\ndata: ${JSON.stringify(this.event())}\n\n`);
    this.streams.add(response);
    response.on('close', () => this.streams.delete(response));
  }
}
