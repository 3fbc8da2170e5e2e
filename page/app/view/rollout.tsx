// One FleetRollout: its waves as bars, what it waits for, what somebody may do about it, and the clusters of one wave.

import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Gate, Rollout, RolloutDetail, WaveStatus } from '../model/api';
import type { Fleet } from '../model/fleet';
import {
  type Action, actions, currentWave, gateOf, holdOf, quoted, rolloutParts, rolloutSign, waveParts, waveSign, wavesOf,
} from '../model/rollouts';
import type { Part } from '../model/states';
import { plural } from '../model/words';
import { clusterAddress, gateAddress, packageAddress, replaceQuery } from '../route';
import { useConnection, useDetail, useRoute, useSeconds } from './context';
import { Copy } from './copy';
import { Missing } from './missing';
import { ExcusedList, Fact, GateState, Revision, Sign, Since, Stack, Steps } from './parts';
import { GateBars, WaitingFor, terms } from './package';
import { Rows } from './rows';

export function RolloutView({ namespace, name }: { namespace: string; name: string }) {
  const connection = useConnection();
  const { query } = useRoute();
  useSeconds();
  const fleet = connection.fleet!;
  const key = `${namespace}/${name}`;
  const rollout = fleet.rollouts.get(key);
  if (!rollout) return <Missing kind="FleetRollout" name={key} namespace={namespace} />;
  const now = connection.now();
  const waves = wavesOf(rollout);
  const current = waves[currentWave(rollout)];
  const shown = waves.find((wave) => wave.name === query.get('wave')) ?? current;
  const { status } = rollout;
  const total = status?.clusters?.total ?? 0;
  const parts = rolloutParts(fleet, rollout);
  return (
    <article class="page">
      <header class="title">
        <h1>
          {name} <span class="dim">{namespace}, rollout</span>
        </h1>
        <p class="verdict large">
          <Sign sign={rolloutSign(rollout)} /> · <b>{rollout.reason}</b> {rollout.message}
        </p>
        <Hold rollout={rollout} />
        <dl class="facts">
          <Fact name="Package">
            {rollout.package ? (
              <a href={packageAddress(`${namespace}/${rollout.package}`)}>{rollout.package}</a>
            ) : (
              <span class="alarm">the spec cannot be read</span>
            )}
          </Fact>
          <Fact name="Revision">
            <Revision words={status?.revision} />
          </Fact>
          <Fact name="Admitted">
            <span class="num">{status?.admitted ?? '–'}</span>
          </Fact>
          <Fact name="Set off">
            <Since at={status?.startedAt} now={now} />
          </Fact>
          {status?.completedAt && (
            <Fact name="Rolled out">
              <Since at={status.completedAt} now={now} />
            </Fact>
          )}
          <Fact name="Evidence">
            <Since at={status?.asOf} now={now} />
          </Fact>
        </dl>
        <Stack parts={parts} total={total} label={`Clusters of ${key}`} />
        <p class="num dim">{inWords(parts)}</p>
      </header>

      <section aria-label="Waves">
        <h2>Waves</h2>
        {waves.length === 0 ? (
          <p class="dim">Nothing has been decided about its waves yet.</p>
        ) : (
          <Lane fleet={fleet} rollout={rollout} waves={waves} current={current} shown={shown} />
        )}
      </section>

      <div class="columns">
        <Actions rollout={rollout} gate={gateOf(fleet, rollout, current)} />
        <Before rollout={rollout} now={now} />
      </div>
      {shown && <WaveSection key={shown.name} rollout={rollout} wave={shown} gate={gateOf(fleet, rollout, shown)} />}
      <LeftOut rollout={rollout} />
      <Steps
        steps={fleet.steps.filter((step) => step.kind === 'rollout' && step.key === key)}
        now={now}
        title="Changes since you opened this page"
      />
      <details>
        <summary>The status</summary>
        <pre tabIndex={0}>{JSON.stringify(status, null, 2)}</pre>
      </details>
    </article>
  );
}

function inWords(parts: Part[]): string {
  return parts.map((part) => `${part.count.toLocaleString('en')} ${part.name}`).join(', ');
}

/** That nobody further is admitted for now, and why. */
function Hold({ rollout }: { rollout: Rollout }) {
  const hold = holdOf(rollout);
  if (!hold) return null;
  return (
    <p class="hold">
      <b>{hold}.</b> No further cluster is admitted; those that are admitted keep the revision, and the gates go on telling how
      they are.
    </p>
  );
}

interface LaneProps {
  fleet: Fleet;
  rollout: Rollout;
  waves: WaveStatus[];
  current: WaveStatus | undefined;
  shown: WaveStatus | undefined;
}

/** The waves in a row. The one that is under way comes into view at first. */
function Lane({ fleet, rollout, waves, current, shown }: LaneProps) {
  const lane = useRef<HTMLOListElement>(null);
  useLayoutEffect(() => {
    const [box, own] = [lane.current, lane.current?.querySelector<HTMLElement>('[aria-current]')];
    if (box && own) box.scrollLeft = own.offsetLeft - box.offsetLeft - (box.clientWidth - own.clientWidth) / 2;
  }, []);
  return (
    <ol class="lane" ref={lane}>
      {waves.map((wave, place) => {
        const sign = waveSign(wave.state);
        return (
          <li key={wave.name} class={`wave ${sign.kind}`} aria-current={wave === current ? 'step' : undefined}>
            <button aria-pressed={wave === shown} onClick={() => replaceQuery({ wave: wave.name, limit: '' })}>
              <span class="dim num">{place + 1}</span> {wave.name}
            </button>
            <Sign sign={sign} />
            <Stack parts={waveParts(wave, gateOf(fleet, rollout, wave))} total={wave.clusters} label={`Clusters of wave ${wave.name}`} />
            <span class="dim num">
              {wave.admitted.toLocaleString('en')} of {wave.clusters.toLocaleString('en')} admitted
            </span>
          </li>
        );
      })}
    </ol>
  );
}

/** One wave: what it waits for, its gate, and its clusters. */
function WaveSection({ rollout, wave, gate }: { rollout: Rollout; wave: WaveStatus; gate: Gate | undefined }) {
  const connection = useConnection();
  const now = connection.now();
  const { namespace } = rollout.metadata;
  const parts = waveParts(wave, gate);
  const waits = (gate?.verdict.waitingFor ?? gate?.status?.waitingFor ?? []).length > 0;
  return (
    <section aria-label={`Wave ${wave.name}`} class="opened">
      <h2>Wave {wave.name}</h2>
      <p class="verdict">
        <Sign sign={waveSign(wave.state)} />
        {wave.message && !waits && ` · ${wave.message}`}
      </p>
      <dl class="facts">
        {wave.gate && (
          <Fact name="Gate">
            <a href={gateAddress(`${namespace}/${wave.gate}`)}>{wave.gate}</a>{' '}
            {gate ? <GateState gate={gate} /> : <span class="alarm">it is not there, or about another revision</span>}
          </Fact>
        )}
        <Fact name="Started">
          <Since at={wave.startedAt} now={now} />
        </Fact>
        {wave.openedAt && (
          <Fact name="Done">
            <Since at={wave.openedAt} now={now} />
          </Fact>
        )}
      </dl>
      {parts.length > 0 && <p class="num dim">{inWords(parts)}</p>}
      {gate && (
        <>
          <p class="num dim">{terms(gate)}</p>
          <GateBars gate={gate} known={connection.known()} />
          {waits && <WaitingFor gate={gate} packageKey={`${namespace}/${rollout.package ?? ''}`} />}
          <ExcusedList excused={gate.status?.excused} count={gate.status?.clusters?.excused} />
        </>
      )}
      <Members rollout={rollout} wave={wave} gate={gate} now={now} />
    </section>
  );
}

/** Clusters that are shown where nothing else is asked for, and that the server tells of at most. */
const [USUAL, MOST] = [100, 1000];

function Members({ rollout, wave, gate, now }: { rollout: Rollout; wave: WaveStatus; gate: Gate | undefined; now: number }) {
  const { query } = useRoute();
  const connection = useConnection();
  const { namespace, name } = rollout.metadata;
  const most = Math.min(MOST, Number(query.get('limit')) || USUAL);
  const item = connection.fleet!.packages.get(`${namespace}/${rollout.package ?? ''}`);
  const trigger = useMemo(() => ({}), [rollout, gate, item]);
  const path = `rollouts/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}?wave=${encodeURIComponent(wave.name)}&limit=${most}`;
  const detail = useDetail<RolloutDetail>(wave.gate ? path : null, trigger);
  if (!wave.gate) {
    const would = wave.clusters > 0 ? ` As things are, it would have ${plural(wave.clusters, 'cluster')}.` : '';
    return <p class="dim">Which clusters the wave has is told when it starts.{would}</p>;
  }
  if (detail.error) return <p class="error">The clusters cannot be shown: {detail.error}</p>;
  if (!detail.value) return <p class="dim">Reading…</p>;
  const lines = (detail.value.clusters ?? []).map(({ clusterName, admitted, row, asOf = null, message = '' }) => ({
    key: clusterName,
    about: <a href={clusterAddress(clusterName)}>{clusterName}</a>,
    more: admitted ? <Since at={admitted} now={now} /> : <span class="dim">waiting</span>,
    row,
    asOf,
    message,
  }));
  if (lines.length === 0) return <p class="dim">The gate of the wave is not there yet.</p>;
  return (
    <Rows label={`Clusters of wave ${wave.name}, table`} about="Cluster" more="Admitted" now={now} lines={lines}>
      {detail.value.more &&
        (most < MOST ? (
          <button onClick={() => replaceQuery({ limit: String(most * 4) })}>Show more than these {lines.length}</button>
        ) : (
          <p class="dim">These are the first {lines.length}; those in trouble come first.</p>
        ))}
    </Rows>
  );
}

function Actions({ rollout, gate }: { rollout: Rollout; gate: Gate | undefined }) {
  const found = actions(rollout, gate);
  if (found.length === 0) return null;
  return (
    <section aria-label="What you can do">
      <h2>What you can do</h2>
      <p class="dim">The page changes nothing itself. On the command line, with your own rights:</p>
      {found.map((action) => (
        <ActionLine key={action.words.join(' ')} action={action} />
      ))}
    </section>
  );
}

function ActionLine({ action: { verb, what, words } }: { action: Action }) {
  const [reason, setReason] = useState('');
  const line = words.map(quoted).join(' ');
  const why = reason.trim();
  return (
    <div class="action">
      <p>{what}:</p>
      {verb === 'promote' ? (
        <>
          <label>
            <span class="dim">Reason</span>{' '}
            <input value={reason} placeholder="why it may go on" onInput={(event) => setReason(event.currentTarget.value)} />
          </label>
          <Copy text={`${line} --reason ${why ? quoted(why) : '…'} --for 1h`} disabled={why === ''} />
        </>
      ) : (
        <Copy text={line} />
      )}
    </div>
  );
}

/** The revision before, and the one that is recommended while the rollout is stalled. */
function Before({ rollout: { status, stalled }, now }: { rollout: Rollout; now: number }) {
  const { previous, recommendedRevision } = status ?? {};
  if (!previous && !(stalled && recommendedRevision)) return null;
  return (
    <section aria-label="Other revisions">
      {stalled && recommendedRevision && (
        <>
          <h2>Recommended</h2>
          <p>
            The rollout is stalled. This revision was last rolled out to all waves, or the package was last Ready at it; nothing
            goes back by itself:
          </p>
          <Copy text={recommendedRevision} />
        </>
      )}
      {previous && (
        <>
          <h2>The revision before</h2>
          <dl class="facts">
            <Fact name="Revision">
              <Revision words={previous.revision} />
            </Fact>
            <Fact name="Admitted">
              <span class="num">{previous.admitted ?? '–'}</span>
            </Fact>
            {previous.wave && <Fact name="Wave">{previous.wave}</Fact>}
            <Fact name="Rolled out">
              {previous.completedAt ? <Since at={previous.completedAt} now={now} /> : <span class="alarm">never</span>}
            </Fact>
            <Fact name="Replaced">
              <Since at={previous.replacedAt} now={now} />
            </Fact>
          </dl>
          {previous.message && <p class="verdict">{previous.message}</p>}
        </>
      )}
    </section>
  );
}

function LeftOut({ rollout: { status } }: { rollout: Rollout }) {
  const names = status?.leftOut ?? [];
  const count = status?.clusters?.leftOut ?? names.length;
  if (count === 0) return null;
  return (
    <section aria-label="Left out">
      <h2>In no wave</h2>
      <p class="waits">
        <span class="names">
          {names.map((name) => (
            <a key={name} href={clusterAddress(name)}>
              {name}
            </a>
          ))}
          {count > names.length && <span class="dim">and {(count - names.length).toLocaleString('en')} more</span>}
        </span>
      </p>
    </section>
  );
}
