// One cluster: its packages, the evidence on each, and how old that is.

import type { ClusterDetail } from '../model/api';
import { rank } from '../model/states';
import { fleetAddress, packageAddress } from '../route';
import { useConnection, useDetail, useRoute, useSeconds } from './context';
import { Missing } from './missing';
import { Fact, Since, Steps } from './parts';
import { Rows } from './rows';

export function ClusterView({ name }: { name: string }) {
  const connection = useConnection();
  const { query } = useRoute();
  useSeconds();
  const fleet = connection.fleet!;
  const scope = connection.namespace ? `?namespace=${encodeURIComponent(connection.namespace)}` : '';
  const detail = useDetail<ClusterDetail>(`clusters/${encodeURIComponent(name)}${scope}`, fleet.changed);
  const known = fleet.clusters.find((cluster) => cluster.name === name);
  if (!known && !detail.value) return <Missing kind="cluster" name={name} />;
  const now = connection.now();
  const labels = Object.entries(detail.value?.labels ?? known?.labels ?? {});
  const chosen = query.get('state') ?? '';
  const rows = (detail.value?.packages ?? []).filter((it) => !chosen || it.row.state === chosen);
  rows.sort((a, b) => rank(a.row.state) - rank(b.row.state) || (a.name < b.name ? -1 : 1));
  const oldest = rows.map((it) => it.asOf ?? '').filter((at) => at !== '').sort()[0];
  return (
    <article class="page">
      <header class="title">
        <h1>
          {name} <span class="dim">cluster</span>
        </h1>
        <dl class="facts">
          {oldest && (
            <Fact name="Oldest evidence">
              <Since at={oldest} now={now} />
            </Fact>
          )}
          <Fact name="Labels">
            {labels.length === 0 ? (
              <span class="dim">none</span>
            ) : (
              labels.map(([key, value]) => (
                <a key={key} class="label" href={fleetAddress({ labels: `${key}=${value}` })}>
                  {key}={value}
                </a>
              ))
            )}
          </Fact>
        </dl>
      </header>
      <section aria-label="Packages">
        <h2>Packages</h2>
        {detail.error && <p class="error">The packages cannot be shown: {detail.error}</p>}
        {!detail.error && !detail.value && <p class="dim">Reading…</p>}
        {detail.value && rows.length === 0 && <p class="dim">No package is targeted at this cluster.</p>}
        {rows.length > 0 && (
          <Rows
            label="Packages, table"
            about="Package"
            now={now}
            lines={rows.map(({ namespace, name: own, row, asOf, message }) => {
              const key = `${namespace}/${own}`;
              const about = (
                <>
                  <a href={packageAddress(key, { cluster: name })}>{own}</a> <span class="dim">{namespace}</span>
                </>
              );
              return { key, about, row, asOf, message };
            })}
          />
        )}
      </section>
      <Steps steps={fleet.steps.filter((step) => step.cluster === name)} now={now} title="Changes since you opened this page" />
    </article>
  );
}
