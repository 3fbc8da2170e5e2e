// Addresses within the page. They stand behind `#`, so that they never reach a server or its log.

export type Place =
  | { view: 'fleet' }
  | { view: 'rollouts' }
  | { view: 'package' | 'rollout' | 'gate'; namespace: string; name: string }
  | { view: 'cluster'; name: string }
  | { view: 'nowhere' };

export interface Route {
  place: Place;
  query: URLSearchParams;
}

function decoded(part: string | undefined): string {
  try {
    return decodeURIComponent(part ?? '');
  } catch {
    return part ?? '';
  }
}

export function parse(hash: string): Route {
  const [path = '', ...rest] = hash.replace(/^#/, '').split('?');
  const parts = path.split('/').slice(1).map(decoded);
  const query = new URLSearchParams(rest.join('?'));
  const [view, first = '', second = ''] = parts;
  const place = (): Place => {
    if (!view) return { view: 'fleet' };
    if (view === 'rollouts' && !first) return { view };
    if ((view === 'package' || view === 'rollout' || view === 'gate') && first && second) return { view, namespace: first, name: second };
    if (view === 'cluster' && first) return { view, name: first };
    return { view: 'nowhere' };
  };
  return { place: place(), query };
}

function address(path: string[], query?: Record<string, string>): string {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== '');
  const tail = given.length > 0 ? `?${new URLSearchParams(given)}` : '';
  return `#/${path.map(encodeURIComponent).join('/')}${tail}`;
}

export const fleetAddress = (query?: Record<string, string>) => address([], query);

/** `key` is NAMESPACE/NAME. */
export function packageAddress(key: string, query?: Record<string, string>): string {
  return address(['package', ...key.split('/')], query);
}

export const rolloutsAddress = (query?: Record<string, string>) => address(['rollouts'], query);

/** `key` is NAMESPACE/NAME. */
export function rolloutAddress(key: string, query?: Record<string, string>): string {
  return address(['rollout', ...key.split('/')], query);
}

export function gateAddress(key: string): string {
  return address(['gate', ...key.split('/')]);
}

export const clusterAddress = (name: string, query?: Record<string, string>) => address(['cluster', name], query);

/** Changes the query of the present address without a new entry in the browser's history; empty values go. */
export function replaceQuery(changed: Record<string, string>): void {
  const { query } = parse(location.hash);
  for (const [name, value] of Object.entries(changed)) {
    if (value === '') query.delete(name);
    else query.set(name, value);
  }
  const path = location.hash.split('?')[0] || '#/';
  const tail = query.toString();
  history.replaceState(null, '', path + (tail ? `?${tail}` : ''));
  dispatchEvent(new HashChangeEvent('hashchange'));
}
