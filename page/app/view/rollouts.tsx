// All FleetRollouts: which are stalled, held, under way and done.

import { useMemo } from 'preact/hooks';
import type { Rollout } from '../model/api';
import { keyOf } from '../model/fleet';
import { holdOf, rolloutParts, rolloutSign } from '../model/rollouts';
import { packageAddress, replaceQuery, rolloutAddress, rolloutsAddress } from '../route';
import { useConnection, useRoute, useSeconds } from './context';
import { Revision, Sign, Since, Stack } from './parts';

/** Rows that are shown where nothing else is asked for. */
const USUAL = 100;

const ORDER = ['stalled', 'waiting', 'held', 'under way', 'rolled out'];

/** What somebody should look at comes first. */
function sorted(rollouts: Iterable<Rollout>, part: string): Rollout[] {
  const found = [...rollouts].filter((it) => keyOf(it).includes(part) || it.package?.includes(part));
  const rank = (it: Rollout) => ORDER.indexOf(rolloutSign(it).words);
  return found.sort((a, b) => rank(a) - rank(b) || (keyOf(a) < keyOf(b) ? -1 : 1));
}

export function RolloutsView() {
  const connection = useConnection();
  const { query } = useRoute();
  useSeconds();
  const fleet = connection.fleet!;
  const part = query.get('name') ?? '';
  const most = Number(query.get('limit')) || USUAL;
  const found = useMemo(() => sorted(fleet.rollouts.values(), part), [fleet, fleet.changed, part]);
  const now = connection.now();
  return (
    <article class="page">
      <h1>Rollouts</h1>
      {fleet.rollouts.size === 0 ? (
        <p>There are no FleetRollouts here that you may see.</p>
      ) : (
        <section aria-label="Rollouts">
          <div class="filters">
            <label>
              <span>Name</span>
              <input
                type="search"
                value={part}
                placeholder="any"
                onInput={(event) => replaceQuery({ name: event.currentTarget.value })}
              />
            </label>
            {part && <a href={rolloutsAddress()}>Show all rollouts</a>}
          </div>
          {found.length === 0 ? (
            <p class="dim">No rollout matches.</p>
          ) : (
            <div class="scroll" tabIndex={0} role="region" aria-label="Rollouts, table">
              <table class="rows">
                <thead>
                  <tr>
                    <th>Rollout</th>
                    <th>State</th>
                    <th>Clusters</th>
                    <th>Admitted</th>
                    <th>Wave</th>
                    <th>Revision</th>
                    <th>Package</th>
                    <th>Since</th>
                    <th>Reason</th>
                  </tr>
                </thead>
                <tbody>
                  {found.slice(0, most).map((rollout) => {
                    const key = keyOf(rollout);
                    const { metadata, status, reason, message } = rollout;
                    const hold = holdOf(rollout);
                    return (
                      <tr key={key}>
                        <td>
                          <a href={rolloutAddress(key)}>{metadata.name}</a> <span class="dim">{metadata.namespace}</span>
                        </td>
                        <td>
                          <Sign sign={rolloutSign(rollout)} />
                        </td>
                        <td class="bars">
                          <Stack parts={rolloutParts(fleet, rollout)} total={status?.clusters?.total ?? 0} label={`Clusters of ${key}`} />
                        </td>
                        <td class="num">{status?.admitted ?? '–'}</td>
                        <td>{status?.wave ?? '–'}</td>
                        <td>
                          <Revision words={status?.revision} />
                        </td>
                        <td>
                          {rollout.package ? (
                            <a href={packageAddress(`${metadata.namespace}/${rollout.package}`)}>{rollout.package}</a>
                          ) : (
                            <span class="alarm">the spec cannot be read</span>
                          )}
                        </td>
                        <td class="num">
                          <Since at={status?.verdictSince} now={now} />
                        </td>
                        <td class="why">
                          {hold && <b>{hold}. </b>}
                          <b>{reason}</b> {message}
                        </td>
                      </tr>
                    );
                  })}
                </tbody>
              </table>
              {found.length > most && (
                <button onClick={() => replaceQuery({ limit: String(most * 4) })}>Show more than these {most}</button>
              )}
            </div>
          )}
        </section>
      )}
    </article>
  );
}
