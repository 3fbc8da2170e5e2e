// One gate: its verdict, the evidence and its age, its terms, and what changed last.

import { waveOf } from '../model/rollouts';
import { gateParts } from '../model/states';
import { needAndBudget } from '../model/clusters';
import { span, unix } from '../model/time';
import { gateAddress, packageAddress, rolloutAddress } from '../route';
import { useConnection, useSeconds } from './context';
import { Missing } from './missing';
import { ExcusedList, Fact, GateState, NewcomersList, Revision, Running, Since, Stack, Steps } from './parts';
import { GateBars, WaitingFor, terms } from './package';

export function GateView({ namespace, name }: { namespace: string; name: string }) {
  const connection = useConnection();
  useSeconds();
  const fleet = connection.fleet!;
  const key = `${namespace}/${name}`;
  const gate = fleet.gates.get(key);
  if (!gate) return <Missing kind="RolloutGate" name={key} namespace={namespace} />;
  const now = connection.now();
  const { spec, status, verdict, metadata } = gate;
  const packageKey = `${namespace}/${spec.fleetPackageRef.name}`;
  const wave = waveOf(fleet, key);
  const total = status?.clusters?.total ?? 0;
  const asOf = unix(verdict.asOf ?? status?.asOf);
  const limit = verdict.staleAfterSeconds ?? 0;
  const age = asOf === null ? null : Math.max(0, now - asOf);
  const conditions = [...(status?.conditions ?? [])].sort((a, b) => (a.lastTransitionTime < b.lastTransitionTime ? 1 : -1));
  const answers = status?.observedGeneration === metadata.generation;
  return (
    <article class="page">
      <header class="title">
        <h1>
          {name} <span class="dim">{namespace}</span>
        </h1>
        <p class="verdict large">
          <GateState gate={gate} /> · <b>{verdict.reason}</b> {verdict.message}
        </p>
        <dl class="facts">
          <Fact name="Package">
            {spec.fleetPackageRef.name ? (
              <a href={packageAddress(packageKey)}>{spec.fleetPackageRef.name}</a>
            ) : (
              <span class="alarm">the spec cannot be read</span>
            )}
          </Fact>
          {wave && (
            <Fact name="Wave">
              {wave.name} of <a href={rolloutAddress(wave.key, { wave: wave.name })}>{wave.rollout}</a>
            </Fact>
          )}
          <Fact name="Revision">
            <Revision words={spec.revision} />
            {verdict.fingerprint && verdict.fingerprint !== spec.revision && (
              <span class="dim mono"> {verdict.fingerprint}</span>
            )}
          </Fact>
          <Fact name="Since">
            <Since at={verdict.since ?? status?.since} now={now} />
          </Fact>
          <Fact name="Generation">
            {metadata.generation ?? '–'}{' '}
            <span class={answers ? 'dim' : 'alarm'}>status answers {status?.observedGeneration ?? 'none'}</span>
          </Fact>
        </dl>
      </header>

      <div class="columns">
        <section aria-label="Evidence">
          <h2>Evidence</h2>
          {age === null ? (
            <p>There is no evidence that is fresh and verified.</p>
          ) : (
            <>
              <p>
                The oldest that counts is from <Since at={verdict.asOf ?? status?.asOf} now={now} />
              </p>
              {limit > 0 && (
                <Running
                  name="Age"
                  bar={{ done: Math.min(1, age / limit), left: Math.max(0, limit - age), whole: limit }}
                  end={`too old by ${span(age - limit)}`}
                />
              )}
            </>
          )}
        </section>
        <section aria-label="Terms">
          <h2>Terms</h2>
          <Stack
            parts={gateParts(status?.clusters)}
            total={total}
            mark={total > 0 ? needAndBudget(spec, total).need : undefined}
            label="Clusters"
          />
          <p class="num">{terms(gate)}</p>
          <p class="num dim">
            {gateParts(status?.clusters)
              .map((part) => `${part.count} ${part.name}`)
              .join(', ')}
          </p>
          <ExcusedList excused={status?.excused} count={status?.clusters?.excused} />
          <NewcomersList newcomers={status?.newcomers} />
          <GateBars gate={gate} known={connection.known()} />
          {spec.override && (
            <p class="override">
              Override: {spec.override.state}, {spec.override.reason}
              {spec.override.until && `, until ${spec.override.until}`}
            </p>
          )}
        </section>
        <section aria-label="Depends on">
          <h2>Depends on</h2>
          {(spec.dependsOn ?? []).length === 0 && !spec.requireStage ? (
            <p class="dim">No other gate.</p>
          ) : (
            <ul class="plain">
              {(spec.dependsOn ?? []).map((other) => {
                const found = fleet.gates.get(`${namespace}/${other.name}`);
                return (
                  <li key={other.name}>
                    <a href={gateAddress(`${namespace}/${other.name}`)}>{other.name}</a>{' '}
                    {found ? <GateState gate={found} /> : <span class="alarm">there is none, or you may not see it</span>}
                  </li>
                );
              })}
              {spec.requireStage && <li>stage {spec.requireStage} of the package's trace</li>}
            </ul>
          )}
        </section>
      </div>

      <section aria-label="Waits for">
        <h2>Waits for</h2>
        {(verdict.waitingFor ?? status?.waitingFor ?? []).length === 0 ? (
          <p class="dim">Nothing.</p>
        ) : (
          <WaitingFor gate={gate} packageKey={packageKey} />
        )}
        <p>
          <a href={packageAddress(packageKey, { wave: name })}>Its clusters, one by one</a>
        </p>
      </section>

      {(status?.checks ?? []).length > 0 && (
        <section aria-label="Checks">
          <h2>Checks</h2>
          <ul class="plain">
            {status!.checks!.map((check) => (
              <li key={check.name}>
                <b>{check.name}</b>: {check.state}
                {check.value && <span class="num"> ({check.value})</span>} {check.message}
              </li>
            ))}
          </ul>
        </section>
      )}

      <section aria-label="What changed last">
        <h2>What changed last</h2>
        <div class="scroll" tabIndex={0} role="region" aria-label="Conditions, table">
          <table>
            <thead>
              <tr>
                <th>Since</th>
                <th>Condition</th>
                <th>Reason</th>
                <th>Message</th>
              </tr>
            </thead>
            <tbody>
              {conditions.map((condition) => (
                <tr key={condition.type}>
                  <td class="num">
                    <Since at={condition.lastTransitionTime} now={now} />
                  </td>
                  <td>
                    {condition.type}={condition.status}
                  </td>
                  <td>{condition.reason}</td>
                  <td class="why">{condition.message}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </section>
      <Steps
        steps={fleet.steps.filter((step) => step.kind === 'gate' && step.key === key)}
        now={now}
        title="Changes since you opened this page"
      />
      <details>
        <summary>The object</summary>
        <pre tabIndex={0}>{JSON.stringify({ metadata, spec, status }, null, 2)}</pre>
      </details>
      <p class="dim">
        On the command line: <code>statusbridge explain gate/{name} -n {namespace}</code>
      </p>
    </article>
  );
}
