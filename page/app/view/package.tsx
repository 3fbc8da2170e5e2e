// One package: its gates as waves, what they wait for, its revisions, its clusters.

import { useMemo } from 'preact/hooks';
import type { Gate, PackageDetail, Waiting } from '../model/api';
import { countRevisions } from '../model/cells';
import { clustersOf, membership, needAndBudget } from '../model/clusters';
import { type Fleet, type Package, keyOf } from '../model/fleet';
import { gatesBefore } from '../model/rollouts';
import { gateParts, rank } from '../model/states';
import { deadlineBar, soakBar } from '../model/time';
import { byPackage, waves } from '../model/waves';
import { namesIn, plural, short } from '../model/words';
import { clusterAddress, gateAddress, packageAddress, replaceQuery, rolloutAddress } from '../route';
import { Adoption } from './adoption';
import { useConnection, useDetail, useRoute, useSeconds } from './context';
import { ExcusedList, Fact, GateState, Revision, Running, Since, Stack, State, Steps, packageParts } from './parts';
import { Missing } from './missing';
import { Rows } from './rows';

export function PackageView({ namespace, name }: { namespace: string; name: string }) {
  const connection = useConnection();
  const { query } = useRoute();
  useSeconds();
  const fleet = connection.fleet!;
  const key = `${namespace}/${name}`;
  const item = fleet.packages.get(key);
  const [state, cluster, wave] = [query.get('state') ?? '', query.get('cluster') ?? '', query.get('wave') ?? ''];
  const most = Number(query.get('limit')) || 100;
  // The server knows states and whole names; waves and parts of names are looked for in the rows that it gives.
  const isWhole = useMemo(() => fleet.clusters.some((it) => it.name === cluster), [fleet, fleet.clusters.length, cluster]);
  const picks = wave !== '' || (cluster !== '' && !isWhole);
  const asked = new URLSearchParams({ limit: String(picks ? Math.max(most, MOST_SEARCHED) : most) });
  if (state) asked.set('state', state);
  if (cluster && isWhole) asked.set('cluster', cluster);
  const path = `packages/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}?${plain(asked)}`;
  const detail = useDetail<PackageDetail>(item ? path : null, item);
  const gates = useMemo(() => byPackage(fleet.gates.values()).get(key) ?? [], [fleet, fleet.changed, key]);
  const before = useMemo(() => gatesBefore(fleet), [fleet, fleet.changed]);
  const rollouts = [...fleet.rollouts.values()].filter((it) => it.metadata.namespace === namespace && it.package === name);
  if (!item) return <Missing kind="FleetPackage" name={key} namespace={namespace} />;
  const now = connection.now();
  const ready = item.status?.conditions?.find((condition) => condition.type === 'Ready');
  const own = gates.map((gate) => gate.metadata.name);
  const steps = fleet.steps.filter(
    (step) => step.key === key || (step.kind === 'gate' && own.some((gate) => step.key === `${namespace}/${gate}`)),
  );
  return (
    <article class="page">
      <header class="title">
        <h1>
          {name} <span class="dim">{namespace}</span>
        </h1>
        <dl class="facts">
          <Fact name="Wanted">
            {item.wanted ? <Revision words={item.wanted} /> : <span class="dim">each cluster's own</span>}
          </Fact>
          <Fact name="Source">{item.spec.package.source || <span class="alarm">the spec cannot be read</span>}</Fact>
          <Fact name="Evidence">
            <Since at={item.status?.asOf} now={now} />
          </Fact>
          {rollouts.length > 0 && (
            <Fact name="Rollout">
              {rollouts.slice(0, 4).map((it) => (
                <a key={it.metadata.name} class="label" href={rolloutAddress(keyOf(it))}>
                  {it.metadata.name}
                </a>
              ))}
            </Fact>
          )}
          {item.status?.lastHealthyRevision && (
            <Fact name="Last healthy">
              <Revision words={item.status.lastHealthyRevision} />
            </Fact>
          )}
        </dl>
        <Stack parts={packageParts(item, fleet)} total={item.total} label={`Clusters of ${key}`} />
        <p class="parts">
          {packageParts(item, fleet)
            .reverse()
            .map((part) => (
              <button
                key={part.name}
                class={part.name === state ? 'chip on' : 'chip'}
                aria-pressed={part.name === state}
                onClick={() => replaceQuery({ state: part.name === state ? '' : part.name })}
              >
                <State word={part.name} />
                <span class="num dim">{part.count.toLocaleString('en')}</span>
              </button>
            ))}
        </p>
        <ExcusedList excused={item.status?.excused} count={item.status?.clusters?.excused} />
        {ready && (
          <p class="verdict">
            <b>{ready.status === 'True' ? 'Ready' : ready.reason}</b> {ready.message}
          </p>
        )}
      </header>

      <section aria-label="Waves">
        <h2>Waves</h2>
        {gates.length === 0 ? (
          <p class="dim">No gate is about this package.</p>
        ) : (
          <ol class="waves">
            {waves(gates, before).map(({ number, gates: own }) => (
              <li key={number}>
                <h3>{number > 0 ? `Wave ${number}` : 'Gates that wait for themselves'}</h3>
                {own.map((gate) => (
                  <GateCard key={gate.metadata.name} gate={gate} item={item} known={connection.known()} />
                ))}
              </li>
            ))}
          </ol>
        )}
      </section>

      <div class="columns">
        <section aria-label="Adoption">
          <h2>Adoption</h2>
          {detail.value?.adoption && detail.value.adoption.points.length > 0 ? (
            <Adoption points={detail.value.adoption.points} total={item.total} now={now} />
          ) : (
            <p class="dim">{noAdoption(item, fleet)}</p>
          )}
        </section>
        <Skew item={item} />
        <History item={item} now={now} />
      </div>

      <section aria-label="Clusters">
        <h2>Clusters</h2>
        <div class="filters">
          <label>
            <span>Cluster</span>
            <input
              type="search"
              value={cluster}
              placeholder="any"
              onInput={(event) => replaceQuery({ cluster: event.currentTarget.value })}
            />
          </label>
          {gates.length > 0 && (
            <label>
              <span>Wave</span>
              <select value={wave} onChange={(event) => replaceQuery({ wave: event.currentTarget.value })}>
                <option value="">all</option>
                {gates.map((gate) => (
                  <option key={gate.metadata.name}>{gate.metadata.name}</option>
                ))}
              </select>
            </label>
          )}
          {(state || cluster || wave) && <a href={packageAddress(key)}>Show all clusters</a>}
        </div>
        <Clusters
          detail={detail.value}
          error={detail.error}
          fleet={fleet}
          gates={gates}
          filter={{ wave, part: cluster, most }}
          now={now}
        />
      </section>
      <Steps steps={steps} now={now} title="Changes since you opened this page" />
    </article>
  );
}

/** Without plus signs for spaces, which the server takes as they are. */
const plain = (query: URLSearchParams) => query.toString().replaceAll('+', '%20');

/** Rows that are looked through for a wave or a part of a name: more would cost the server too much, each second. */
const MOST_SEARCHED = 1000;

/** Why there is no line of adoption. */
function noAdoption(item: Package, fleet: Fleet): string {
  if (item.wanted === null) return 'No revision is wanted.';
  const healthy = item.counts[fleet.states.indexOf('Healthy')] ?? 0;
  return healthy === 0
    ? 'No cluster is healthy at the wanted revision yet.'
    : `${plural(healthy, 'cluster')} healthy at the wanted revision; since when is not known.`;
}

/** What a gate's spec asks for, in one line. */
export function terms(gate: Gate): string {
  const total = gate.status?.clusters?.total ?? 0;
  const healthy = gate.status?.clusters?.healthy ?? 0;
  const { need, budget } = needAndBudget(gate.spec, total);
  const word = gate.spec.require === 'Applied' ? 'applied' : 'healthy';
  const soak = gate.spec.minSuccessTime ? ` for ${gate.spec.minSuccessTime}` : '';
  const counts = gate.status?.clusters ?? {};
  const spent = ['failed', 'stale', 'missing', 'unverified', 'conflicting'].reduce((sum, it) => sum + (counts[it] ?? 0), 0);
  const excused = counts.excused ? `; ${counts.excused} excused` : '';
  return `${healthy} of ${total} ${word}${soak}, ${need} needed; ${spent} failed or unobserved, ${budget} allowed${excused}`;
}

/** Soak and deadline; `known` is up to when anything is known. */
export function GateBars({ gate, known }: { gate: Gate; known: number }) {
  const soaking = gate.status?.waitingFor?.find((entry) => entry.reason === 'Soaking');
  const soak = soakBar(soaking?.until, gate.spec.minSuccessTime, known);
  const deadline = gate.verdict.open ? null : deadlineBar(gate.status?.startedAt, gate.spec.progressDeadline, known);
  return (
    <>
      {soak && <Running name="Soak" bar={soak} end="over; waiting for evidence" />}
      {deadline && <Running name="Deadline" bar={deadline} end="passed" />}
    </>
  );
}

/** The message with its clusters as links; those that it does not name follow. */
function Linked({ entry, packageKey }: { entry: Waiting; packageKey: string }) {
  const names = entry.clusters ?? [];
  const pieces = namesIn(entry.message, names);
  const told = new Set(pieces);
  const others = names.filter((name) => !told.has(name));
  const link = (name: string) => <a href={packageAddress(packageKey, { cluster: name })}>{name}</a>;
  return (
    <>
      {pieces.map((piece, place) => (place % 2 === 1 ? link(piece) : piece))}
      {others.length > 0 && (
        <span class="names">
          {others.map(link)}
          {entry.count > names.length && <span class="dim">and {entry.count - names.length} more</span>}
        </span>
      )}
    </>
  );
}

export function WaitingFor({ gate, packageKey }: { gate: Gate; packageKey: string }) {
  const waiting = gate.verdict.waitingFor ?? gate.status?.waitingFor ?? [];
  return (
    <ul class="waits">
      {waiting.map((entry) => (
        <li key={entry.reason + entry.message}>
          <b>{entry.reason}</b> <Linked entry={entry} packageKey={packageKey} />
        </li>
      ))}
    </ul>
  );
}

function GateCard({ gate, item, known }: { gate: Gate; item: Package; known: number }) {
  const { name, namespace } = gate.metadata;
  const { verdict, spec, status } = gate;
  const total = status?.clusters?.total ?? 0;
  const depends = (spec.dependsOn ?? []).map((it) => it.name);
  const waits = (verdict.waitingFor ?? status?.waitingFor ?? []).length > 0;
  return (
    <div class={`gate ${verdict.open ? 'open' : verdict.state.toLowerCase()}`}>
      <div class="head">
        <a href={gateAddress(`${namespace}/${name}`)}>{name}</a>
        <GateState gate={gate} />
      </div>
      <Stack
        parts={gateParts(status?.clusters)}
        total={total}
        mark={total > 0 ? needAndBudget(spec, total).need : undefined}
        label={`Clusters of gate ${name}`}
      />
      <p class="dim num">{terms(gate)}</p>
      {spec.revision !== item.wanted && (
        <p>
          for <Revision words={spec.revision} />
        </p>
      )}
      <GateBars gate={gate} known={known} />
      {spec.override && (
        <p class="override">
          Override: {spec.override.state}, {spec.override.reason}
          {spec.override.until && `, until ${spec.override.until}`}
        </p>
      )}
      {depends.length > 0 && <p class="dim">after {depends.join(', ')}</p>}
      {waits ? <WaitingFor gate={gate} packageKey={item.key} /> : <p class="dim">{verdict.message}</p>}
      <p>
        <a class="dim" href={packageAddress(item.key, { wave: name })}>
          its clusters
        </a>
      </p>
    </div>
  );
}

/** In how many clusters each revision is applied. */
function Skew({ item }: { item: Package }) {
  const counts = countRevisions(item.cells);
  const most = counts[0]?.count ?? 1;
  return (
    <section aria-label="Revisions in the fleet">
      <h2>Revisions in the fleet</h2>
      <ul class="skew">
        {counts.slice(0, 8).map(({ revision, count }) => {
          const words = item.revisions[revision] ?? null;
          const wanted = words !== null && words === item.wanted;
          return (
            <li key={revision}>
              <span class="mono" title={words ?? ''}>
                {words === null ? 'none known' : short(words)}
              </span>
              <span class="track" aria-hidden="true">
                <span class={wanted ? 'done' : 'done other'} style={{ width: `${(100 * count) / most}%` }} />
              </span>
              <span class="num">
                {count.toLocaleString('en')} {wanted && <span class="dim">wanted</span>}
              </span>
            </li>
          );
        })}
        {counts.length > 8 && <li class="dim">and {plural(counts.length - 8, 'other revision')}</li>}
      </ul>
    </section>
  );
}

function History({ item, now }: { item: Package; now: number }) {
  const history = item.status?.history ?? [];
  if (history.length === 0) return null;
  return (
    <section aria-label="What was wanted">
      <h2>What was wanted</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Wanted revisions">
        <table class="tight">
          <thead>
            <tr>
              <th>Revision</th>
              <th>Wanted since</th>
              <th>Healthy since</th>
            </tr>
          </thead>
          <tbody>
            {history.map((entry) => (
              <tr key={entry.revision + entry.startedAt}>
                <td>
                  <Revision words={entry.revision} />
                </td>
                <td>
                  <Since at={entry.startedAt} now={now} />
                </td>
                <td>{entry.healthyAt ? <Since at={entry.healthyAt} now={now} /> : <span class="dim">never</span>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

interface ClustersProps {
  detail: PackageDetail | null;
  error: string | null;
  fleet: Fleet;
  gates: Gate[];
  filter: { wave: string; part: string; most: number };
  now: number;
}

function Clusters({ detail, error, fleet, gates, filter: { wave, part, most }, now }: ClustersProps) {
  const labels = useMemo(() => new Map(fleet.clusters.map((it) => [it.name, it])), [fleet, fleet.changed]);
  const members = useMemo(
    () => gates.map((gate) => ({ name: gate.metadata.name, has: membership(clustersOf(gate)) })),
    [gates],
  );
  if (error) return <p class="error">The clusters cannot be shown: {error}</p>;
  if (!detail) return <p class="dim">Reading…</p>;
  const inGates = (name: string) =>
    members.filter(({ has }) => has(labels.get(name) ?? { name })).map((member) => member.name);
  const found = detail.clusters.filter(
    ({ row }) => row.clusterName.includes(part) && (!wave || inGates(row.clusterName).includes(wave)),
  );
  found.sort((a, b) => rank(a.row.state) - rank(b.row.state));
  const rows = found.slice(0, most);
  const isCut = rows.length < found.length || detail.more === true;
  if (rows.length === 0) return <p class="dim">No cluster matches.</p>;
  const lines = rows.map(({ row, asOf, message }) => ({
    key: row.clusterName,
    about: <a href={clusterAddress(row.clusterName)}>{row.clusterName}</a>,
    more: <span class="dim">{inGates(row.clusterName).join(', ')}</span>,
    row,
    asOf,
    message,
  }));
  return (
    <Rows label="Clusters, table" about="Cluster" more={gates.length > 0 ? 'Waves' : undefined} now={now} lines={lines}>
      {isCut &&
        (most < MOST_SEARCHED ? (
          <button onClick={() => replaceQuery({ limit: String(most * 4) })}>Show more than these {rows.length}</button>
        ) : (
          <p class="dim">These are the first {rows.length}: choose a state, a wave or a name to see others.</p>
        ))}
    </Rows>
  );
}
