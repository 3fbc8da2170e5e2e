// What every view knows: the connection, the address, and details that are read when they are needed.

import { createContext } from 'preact';
import { useContext, useEffect, useRef, useState } from 'preact/hooks';
import type { Connection } from '../live/connection';
import { request } from '../live/requests';
import { type Route, parse } from '../route';

export const ConnectionContext = createContext<Connection>(null as unknown as Connection);

/** The connection; the component is drawn again at every change. */
export function useConnection(): Connection {
  const connection = useContext(ConnectionContext);
  const [, draw] = useState(0);
  useEffect(() => connection.subscribe(() => draw((count) => count + 1)), [connection]);
  return connection;
}

export function useRoute(): Route {
  const [route, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const listen = () => set(parse(location.hash));
    addEventListener('hashchange', listen);
    return () => removeEventListener('hashchange', listen);
  }, []);
  return route;
}

/** Draws again every second, for what shows times. */
export function useSeconds(): void {
  const [, draw] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => draw((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, []);
}

/** An answer that takes longer is not waited for, in milliseconds. */
const PATIENCE = 15_000;

export interface Detail<T> {
  value: T | null;
  error: string | null;
}

/**
 * Reads `path` now, within a second when `trigger` changes, and every ten seconds. An answer to another path is never
 * shown, nor is an old one after an error.
 */
export function useDetail<T>(path: string | null, trigger: unknown): Detail<T> {
  const [detail, set] = useState<Detail<T> & { path: string | null }>({ path, value: null, error: null });
  const due = useRef(false);
  useEffect(() => {
    due.current = true;
  }, [trigger]);
  useEffect(() => {
    if (path === null) return;
    const controller = new AbortController();
    const read = async () => {
      try {
        const response = await request(path, AbortSignal.any([controller.signal, AbortSignal.timeout(PATIENCE)]));
        set({ path, value: (await response.json()) as T, error: null });
      } catch (error) {
        if (!controller.signal.aborted) set({ path, value: null, error: (error as Error).message });
      }
    };
    let last = -Infinity;
    let busy = false;
    const tick = () => {
      const age = performance.now() - last;
      if (busy || age < 1000 || (!due.current && age < 10_000)) return;
      [last, busy, due.current] = [performance.now(), true, false];
      void read().finally(() => (busy = false));
    };
    tick();
    const timer = setInterval(tick, 200);
    return () => {
      clearInterval(timer);
      controller.abort();
    };
  }, [path]);
  return detail.path === path ? detail : { value: null, error: null };
}
