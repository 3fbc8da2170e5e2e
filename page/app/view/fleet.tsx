// The fleet: packages by clusters, grouped and filtered.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { PackageDetail } from '../model/api';
import { type Filter, cellTest, labelsOf, statesOf, view } from '../model/filter';
import type { Fleet, Package } from '../model/fleet';
import { look } from '../model/states';
import { span, unix } from '../model/time';
import { plural, short } from '../model/words';
import { clusterAddress, fleetAddress, replaceQuery, packageAddress } from '../route';
import { useConnection, useDetail, useRoute } from './context';
import { type Cell, Matrix, WIDTHS, fittingWidth, sideWidth } from './matrix';
import { State, Steps } from './parts';

function filterOf(query: URLSearchParams): Filter {
  const list = (name: string) => (query.get(name) ?? '').split(',').filter((word) => word !== '');
  const text = (name: string) => query.get(name) ?? '';
  return {
    namespace: text('namespace'),
    package: text('package'),
    cluster: text('cluster'),
    labels: list('labels'),
    states: list('state'),
    revision: text('revision'),
    group: text('group'),
    order: text('order') === 'trouble' ? 'trouble' : 'name',
  };
}

function cellOf(fleet: Fleet, text: string | null): Cell | null {
  const [key, ...rest] = (text ?? '').split('@');
  const item = fleet.packages.get(key ?? '');
  const name = rest.join('@');
  const cluster = fleet.clusters.findIndex((it) => it.name === name);
  return item && cluster >= 0 ? { package: item, cluster } : null;
}

export function FleetView() {
  const connection = useConnection();
  const { query } = useRoute();
  const fleet = connection.fleet!;
  const filterKey = [...query].filter(([name]) => name !== 'cell' && name !== 'size').join('&');
  const filter = useMemo(() => filterOf(query), [filterKey]);
  const shown = useMemo(() => view(fleet, filter), [fleet, fleet.changed, filter]);
  const shows = useMemo(
    () => (shown.picks ? (item: Package) => cellTest(fleet, filter, item) : null),
    [fleet, filter, shown.picks],
  );
  const [focusName, setFocusName] = useState(query.get('cell'));
  const [hover, setHover] = useState<Cell | null>(null);
  const focus = useMemo(() => cellOf(fleet, focusName), [fleet, fleet.changed, focusName]);
  const write = useRef(0);
  const setFocus = (cell: Cell) => {
    const name = `${cell.package.key}@${fleet.clusters[cell.cluster]!.name}`;
    setFocusName(name);
    clearTimeout(write.current);
    // Browsers refuse many changes of the address in a short time.
    write.current = window.setTimeout(() => replaceQuery({ cell: name }), 300);
  };
  useEffect(() => () => clearTimeout(write.current), []);

  const space = document.documentElement.clientWidth - 34;
  const fitting = fittingWidth(shown.clusters.length, space - sideWidth(space) - shown.groups.length * 8);
  const chosen = Number(query.get('size'));
  const width = WIDTHS.find((it) => it === chosen) ?? fitting;
  const zoom = (step: number) => {
    const next = step > 0 ? WIDTHS.find((it) => it > width) : WIDTHS.findLast((it) => it < width);
    if (next) replaceQuery({ size: String(next) });
  };
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if ((event.target as HTMLElement).matches('input, select, textarea') || event.ctrlKey || event.metaKey) return;
      if (event.key === '+') zoom(1);
      if (event.key === '-') zoom(-1);
    };
    addEventListener('keydown', listen);
    return () => removeEventListener('keydown', listen);
  });

  const describe = (cell: Cell) => {
    const item = fleet.packages.get(cell.package.key) ?? cell.package;
    const own = item.cells.state[cell.cluster] ?? -1;
    const word = fleet.states[own];
    const where = `${item.key} in ${fleet.clusters[cell.cluster]?.name ?? ''}`;
    if (!word) return `${where}: no target`;
    const revision = item.revisions[item.cells.revision[cell.cluster] ?? -1];
    const why = item.excuses.get(cell.cluster);
    const excused = why === undefined ? '' : `; excused: ${why}`;
    return `${where}: ${word}, ${look(word).meaning}; runs ${revision ? short(revision) : 'no known revision'}${excused}`;
  };

  return (
    <div class="fleet">
      <h1 class="sr">Fleet</h1>
      <Filters fleet={fleet} filter={filter} />
      <Legend fleet={fleet} filter={filter} counts={shown.counts} width={width} zoom={zoom} />
      {shown.packages.length === 0 || shown.clusters.length === 0 ? (
        <p class="empty">
          {fleet.packages.size === 0 ? (
            'There are no FleetPackages here that you may see.'
          ) : (
            <>
              Nothing matches the filter. <a href={fleetAddress()}>Show everything</a>
            </>
          )}
        </p>
      ) : (
        <Matrix
          fleet={fleet}
          view={shown}
          cellWidth={width}
          shows={shows}
          focus={focus}
          describe={describe}
          onFocus={setFocus}
          onHover={setHover}
          onOpen={(cell) => {
            clearTimeout(write.current);
            location.hash = packageAddress(cell.package.key, { cluster: fleet.clusters[cell.cluster]!.name });
          }}
        />
      )}
      <Inspector fleet={fleet} focus={focus} hover={hover} now={connection.now()} describe={describe} />
      <details class="recent">
        <summary>Latest changes</summary>
        <Steps steps={fleet.steps} now={connection.now()} title="Changes since you opened this page" />
      </details>
    </div>
  );
}

function Filters({ fleet, filter }: { fleet: Fleet; filter: Filter }) {
  const labels = useMemo(() => labelsOf(fleet), [fleet, fleet.changed]);
  const namespaces = useMemo(() => {
    const all = [...fleet.packages.values()].map((item) => item.metadata.namespace);
    return [...new Set(all)].sort();
  }, [fleet, fleet.changed]);
  const text = (name: string) => (event: Event) => replaceQuery({ [name]: (event.target as HTMLInputElement).value });
  const addLabel = (value: string) => {
    if (value !== '' && !filter.labels.includes(value)) replaceQuery({ labels: [...filter.labels, value].join(',') });
  };
  return (
    <div class="filters" role="group" aria-label="Filters">
      {namespaces.length > 1 && (
        <label>
          <span>Namespace</span>
          <select value={filter.namespace} onChange={text('namespace')}>
            <option value="">all</option>
            {namespaces.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      )}
      <label>
        <span>Package</span>
        <input type="search" size={7} value={filter.package} onInput={text('package')} placeholder="any" />
      </label>
      <label>
        <span>Cluster</span>
        <input type="search" size={7} value={filter.cluster} onInput={text('cluster')} placeholder="any" />
      </label>
      <label>
        <span>Revision</span>
        <input
          type="search"
          size={7}
          list="revisions"
          value={filter.revision}
          onInput={text('revision')}
          placeholder="any"
        />
        <datalist id="revisions">
          <option value="wanted">at the wanted revision</option>
          <option value="other">at another one</option>
        </datalist>
      </label>
      {labels.size > 0 && (
        <>
          <label>
            <span>Label</span>
            <select value="" onChange={(event) => addLabel(event.currentTarget.value)}>
              <option value="">any</option>
              {[...labels].map(([key, values]) => (
                <optgroup label={key} key={key}>
                  {values.slice(0, 200).map((value) => (
                    <option key={value} value={`${key}=${value}`}>
                      {value}
                    </option>
                  ))}
                </optgroup>
              ))}
            </select>
          </label>
          {filter.labels.map((label) => (
            <button
              key={label}
              class="chip on"
              title="Take away this filter"
              onClick={() => replaceQuery({ labels: filter.labels.filter((it) => it !== label).join(',') })}
            >
              {label} <span aria-hidden="true">×</span>
            </button>
          ))}
          <label>
            <span>Group by</span>
            <select value={filter.group} onChange={text('group')}>
              <option value="">nothing</option>
              {[...labels.keys()].map((key) => (
                <option key={key}>{key}</option>
              ))}
            </select>
          </label>
        </>
      )}
      <label>
        <span>Order</span>
        <select value={filter.order} onChange={text('order')}>
          <option value="name">by name</option>
          <option value="trouble">trouble first</option>
        </select>
      </label>
    </div>
  );
}

interface LegendProps {
  fleet: Fleet;
  filter: Filter;
  counts: number[];
  width: number;
  zoom: (step: number) => void;
}

function Legend({ fleet, filter, counts, width, zoom }: LegendProps) {
  const toggle = (word: string) => {
    const on = filter.states.includes(word);
    const states = on ? filter.states.filter((it) => it !== word) : [...filter.states, word];
    replaceQuery({ state: states.join(',') });
  };
  const present = statesOf(fleet).filter(
    (word) => filter.states.includes(word) || (counts[fleet.states.indexOf(word)] ?? 0) > 0,
  );
  const { namespace, package: name, cluster, labels, states, revision } = filter;
  const isFiltered = [namespace, name, cluster, revision, ...labels, ...states].some((text) => text !== '');
  const gates = [...fleet.gates.values()];
  const open = gates.filter((gate) => gate.verdict.open).length;
  const stalled = gates.filter((gate) => gate.verdict.state === 'Stalled').length;
  return (
    <div class="legend" role="group" aria-label="States: press one to filter by it">
      {present.map((word) => (
        <button
          key={word}
          class={filter.states.includes(word) ? 'chip on' : 'chip'}
          aria-pressed={filter.states.includes(word)}
          onClick={() => toggle(word)}
        >
          <State word={word} />
          <span class="num dim">{(counts[fleet.states.indexOf(word)] ?? 0).toLocaleString('en')}</span>
        </button>
      ))}
      {isFiltered && <a href={fleetAddress({ group: filter.group, order: filter.order })}>Show everything</a>}
      <span class="zoom" role="group" aria-label="Size of the cells">
        <button aria-label="Smaller cells" onClick={() => zoom(-1)} disabled={width === WIDTHS[0]}>
          −
        </button>
        <button aria-label="Larger cells" onClick={() => zoom(1)} disabled={width === WIDTHS.at(-1)}>
          +
        </button>
      </span>
      {gates.length > 0 && (
        <span class="gates dim">
          {plural(gates.length, 'gate')}: <b>{open} open</b>
          {stalled > 0 && <b class="alarm">, {stalled} stalled</b>}
        </span>
      )}
    </div>
  );
}

interface InspectorProps {
  fleet: Fleet;
  focus: Cell | null;
  hover: Cell | null;
  now: number;
  describe: (cell: Cell) => string;
}

/** The cell under the pointer, or the one with the focus, in words. */
function Inspector({ fleet, focus, hover, now, describe }: InspectorProps) {
  const cell = hover ?? focus;
  const [asked, setAsked] = useState<Cell | null>(null);
  // Only the cell that stays in focus is asked about, not each one on the way.
  useEffect(() => {
    const timer = setTimeout(() => setAsked(focus), 250);
    return () => clearTimeout(timer);
  }, [focus?.package.key, focus?.cluster]);
  const name = asked ? (fleet.clusters[asked.cluster]?.name ?? '') : '';
  const path = asked
    ? `packages/${asked.package.key.split('/').map(encodeURIComponent).join('/')}?limit=1&cluster=${encodeURIComponent(name)}`
    : null;
  const detail = useDetail<PackageDetail>(path, asked && fleet.packages.get(asked.package.key));
  if (!cell) {
    return (
      <div class="inspector dim">
        <span>
          Point at a cell, or move with the arrow keys. <kbd>?</kbd> shows all keys.
        </span>
      </div>
    );
  }
  const item = fleet.packages.get(cell.package.key) ?? cell.package;
  const cluster = fleet.clusters[cell.cluster];
  const word = fleet.states[item.cells.state[cell.cluster] ?? -1];
  const revision = item.revisions[item.cells.revision[cell.cluster] ?? -1];
  const isAsked = asked?.cluster === cell.cluster && asked.package.key === item.key;
  const found = isAsked ? detail.value?.clusters.find((it) => it.row.clusterName === cluster?.name) : undefined;
  const since = unix(found?.row.lastTransitionTime);
  return (
    <div class="inspector">
      {word ? <State word={word} /> : <span class="dim">no target</span>}
      <span>
        <a href={packageAddress(item.key, { cluster: cluster?.name ?? '' })}>{item.key}</a> in{' '}
        <a href={clusterAddress(cluster?.name ?? '')}>{cluster?.name}</a>
      </span>
      {item.excuses.has(cell.cluster) && <span class="override">excused: {item.excuses.get(cell.cluster)}</span>}
      {found && found.row.reason !== word && <b>{found.row.reason}</b>}
      {found?.message && <span>{found.message}</span>}
      {since !== null && <span class="dim">for {span(now - since)}</span>}
      <span class="dim">
        runs <span class="mono">{short(revision)}</span>
        {item.wanted && item.wanted !== revision && (
          <>
            , wanted <span class="mono">{short(item.wanted)}</span>
          </>
        )}
      </span>
      <span class="dim labels">
        {Object.entries(cluster?.labels ?? {})
          .slice(0, 6)
          .map(([key, value]) => `${key}=${value}`)
          .join(' ')}
      </span>
      <span class="sr" aria-live="polite">
        {focus && !hover ? describe(focus) : ''}
      </span>
    </div>
  );
}
