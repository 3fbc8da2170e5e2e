// The frame around every view: name, search, connection, and what stands in the way of seeing anything.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Connection, Link } from '../live/connection';
import { token } from '../live/requests';
import { clock, span, unix } from '../model/time';
import { type Route, fleetAddress, rolloutsAddress } from '../route';
import { ClusterView } from './cluster';
import { ConnectionContext, useConnection, useRoute, useSeconds } from './context';
import { FleetView } from './fleet';
import { GateView } from './gate';
import { Help } from './help';
import { Missing } from './missing';
import { useNote } from './note';
import { PackageView } from './package';
import { RolloutView } from './rollout';
import { RolloutsView } from './rollouts';
import { Search } from './search';
import { nextTheme, useTheme } from './theme';

export function App({ connection }: { connection: Connection }) {
  return (
    <ConnectionContext.Provider value={connection}>
      <Frame />
    </ConnectionContext.Provider>
  );
}

function Frame() {
  const connection = useConnection();
  const route = useRoute();
  useSeconds();
  const [help, setHelp] = useState(false);
  const [note, setNote] = useNote();
  const [theme, setTheme] = useTheme();
  const main = useRef<HTMLElement>(null);
  const { link, fleet } = connection;

  useEffect(() => {
    document.title = (fleet && !connection.isCurrent ? 'Not current: ' : '') + titleOf(route);
  });
  useEffect(() => {
    main.current?.scrollTo(0, 0);
  }, [JSON.stringify(route.place)]);

  const copy = async () => {
    const address = location.href;
    try {
      await navigator.clipboard.writeText(address);
      setNote('The address is copied.');
    } catch {
      setNote(`The browser does not let this page copy: ${address}`);
    }
  };
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (target.matches('input, select, textarea') || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === '?') setHelp(true);
      if (event.key === 't') setTheme(nextTheme(theme));
      if (event.key === 'f') location.hash = fleetAddress();
      if (event.key === 'r') location.hash = rolloutsAddress();
      if (event.key === 'y') void copy();
    };
    addEventListener('keydown', listen);
    return () => removeEventListener('keydown', listen);
  });

  return (
    <>
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        main.current?.focus();
      }}>
        Skip to the content
      </a>
      <header class="bar">
        <a class="brand" href={fleetAddress()} aria-label="Status Bridge, the fleet">
          <img src="./icon.svg" alt="" width="20" height="20" />
          <span>Status Bridge</span>
        </a>
        <a href={rolloutsAddress()}>Rollouts</a>
        <Search fleet={fleet} />
        <Evidence connection={connection} />
        <button class="quiet" onClick={() => void copy()} title="Copy the address (y)" aria-label="Copy the address">
          <svg viewBox="0 0 16 16" width="15" height="15" aria-hidden="true">
            <path d="M6.5 9.5l3-3M7 4.5l1.6-1.6a2.9 2.9 0 0 1 4.1 4.1L11 8.6M9 11.4l-1.7 1.7a2.9 2.9 0 0 1-4.1-4.1L5 7.3" />
          </svg>
        </button>
        <button
          class="quiet"
          onClick={() => setTheme(nextTheme(theme))}
          title="Dark, light, or as your system is (t)"
          aria-label={`Colours: ${theme}`}
        >
          <svg viewBox="0 0 16 16" width="15" height="15" aria-hidden="true">
            <circle cx="8" cy="8" r="5.5" />
            {theme !== 'light' && <path class="full" d={theme === 'dark' ? 'M8 2.5a5.5 5.5 0 0 1 0 11 5.5 5.5 0 0 1 0-11' : 'M8 2.5a5.5 5.5 0 0 1 0 11'} />}
          </svg>
        </button>
        <button class="quiet" onClick={() => setHelp(true)} title="Keys and signs (?)" aria-label="Keys and signs">
          ?
        </button>
      </header>
      <Banner connection={connection} />
      <main
        id="main"
        ref={main}
        tabIndex={-1}
        class={fleet && !connection.isCurrent ? 'old' : ''}
        data-current={connection.isCurrent}
      >
        {fleet ? <View route={route} /> : <Obstacle link={link} connection={connection} route={route} />}
      </main>
      <div class="note" role="status">
        {note}
      </div>
      {help && <Help onClose={() => setHelp(false)} />}
    </>
  );
}

function titleOf({ place }: Route): string {
  if (place.view === 'fleet' || place.view === 'nowhere') return 'Fleet · Status Bridge';
  if (place.view === 'rollouts') return 'Rollouts · Status Bridge';
  return `${place.name} · ${place.view} · Status Bridge`;
}

function View({ route: { place } }: { route: Route }) {
  switch (place.view) {
    case 'fleet':
      return <FleetView />;
    case 'package':
      return <PackageView key={`${place.namespace}/${place.name}`} namespace={place.namespace} name={place.name} />;
    case 'rollouts':
      return <RolloutsView />;
    case 'rollout':
      return <RolloutView key={`${place.namespace}/${place.name}`} namespace={place.namespace} name={place.name} />;
    case 'gate':
      return <GateView namespace={place.namespace} name={place.name} />;
    case 'cluster':
      return <ClusterView key={place.name} name={place.name} />;
    case 'nowhere':
      return <Missing kind="view" name={location.hash} />;
  }
}

/** Whether the page is live, and how old the newest evidence is. */
function Evidence({ connection }: { connection: Connection }) {
  const { link, fleet } = connection;
  const asOf = unix(fleet?.asOf);
  const age = asOf === null ? null : Math.max(0, connection.now() - asOf);
  const word = link.kind === 'live' ? (fleet?.silent === null ? 'Live' : 'Silent') : link.kind === 'lost' ? 'Lost' : '';
  return (
    <span class={`evidence ${word.toLowerCase()}`}>
      <span class="lamp" aria-hidden="true" />
      {word}
      {age !== null && <span class="dim num"> evidence {span(age)} old</span>}
      {connection.namespace && (
        <button class="chip" title="Show all namespaces" onClick={() => connection.restart('')}>
          only {connection.namespace} ×
        </button>
      )}
    </span>
  );
}

/** Why what is shown is not what is so now, and since when. Only what does not tick is an alert, which is read out at every change. */
function Banner({ connection }: { connection: Connection }) {
  const { link, fleet } = connection;
  const now = Date.now() / 1000;
  if (link.kind === 'lost' && fleet) {
    const since = link.since / 1000;
    const next = Math.max(0, Math.ceil((link.retryAt - Date.now()) / 1000));
    return (
      <section class="banner" aria-label="Not current">
        <span role="alert">
          <b>Not current.</b> The connection was lost at {clock(since, now)}: {link.why}.
        </span>{' '}
        Everything below is as it was then, {span(now - since)} ago.{' '}
        {next > 0 ? `Trying again in ${next}s.` : 'Trying again.'} <button onClick={() => connection.retry()}>Try now</button>
      </section>
    );
  }
  if (link.kind === 'live' && fleet?.silent) {
    const asOf = unix(fleet.asOf);
    return (
      <section class="banner" aria-label="Not current">
        <span role="alert">
          <b>Not current.</b> {fleet.silent.replace(/\.$/, '')}.
        </span>{' '}
        Everything below is old
        {asOf !== null && `: the newest evidence is from ${clock(asOf, connection.now())}, ${span(connection.now() - asOf)} ago`}.
      </section>
    );
  }
  return null;
}

function Obstacle({ link, connection, route }: { link: Link; connection: Connection; route: Route }) {
  if (link.kind === 'token') return <TokenForm message={link.message} connection={connection} />;
  if (link.kind === 'forbidden') return <Forbidden message={link.message} connection={connection} route={route} />;
  return (
    <div class="obstacle" role="status">
      {link.kind === 'lost' ? (
        <>
          <h1>Nothing can be shown</h1>
          <p>
            {link.why} (since {clock(link.since / 1000, Date.now() / 1000)}). The page keeps trying.
          </p>
        </>
      ) : (
        <p class="dim">Reading the fleet…</p>
      )}
    </div>
  );
}

function TokenForm({ message, connection }: { message: string; connection: Connection }) {
  const [value, setValue] = useState('');
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  return (
    <form
      class="obstacle"
      onSubmit={(event) => {
        event.preventDefault();
        token.set(value.trim().replace(/^Bearer /i, ''));
        connection.restart();
      }}
    >
      <h1>A token is needed</h1>
      <p>{message}</p>
      <label for="token">Bearer token of the hub</label>
      <input
        id="token"
        ref={field}
        type="password"
        autocomplete="off"
        value={value}
        onInput={(event) => setValue(event.currentTarget.value)}
      />
      <p class="dim">
        For instance from <code>kubectl create token NAME</code>. This tab keeps it until you close it, and sends it in a
        header to this server alone.
      </p>
      <button type="submit" disabled={value.trim() === ''}>
        Show the fleet
      </button>
    </form>
  );
}

function Forbidden({ message, connection, route }: { message: string; connection: Connection; route: Route }) {
  const [name, setName] = useState('namespace' in route.place ? route.place.namespace : connection.namespace);
  return (
    <form
      class="obstacle"
      onSubmit={(event) => {
        event.preventDefault();
        connection.restart(name.trim());
      }}
    >
      <h1>You may not see this</h1>
      <p>{message}</p>
      <label for="namespace">Show one namespace only</label>
      <input id="namespace" value={name} onInput={(event) => setName(event.currentTarget.value)} />
      <button type="submit">Show it</button>
      <button
        type="button"
        onClick={() => {
          token.set('');
          connection.restart('');
        }}
      >
        Use another token
      </button>
    </form>
  );
}
