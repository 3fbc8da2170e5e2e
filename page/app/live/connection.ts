// Keeps the fleet up to date, and says when it is not.

import type { Changes, Snapshot } from '../model/api';
import { type Fleet, apply, read } from '../model/fleet';
import { parser } from './events';
import { Refusal, request } from './requests';

export type Link =
  | { kind: 'starting' }
  | { kind: 'live' }
  /** Times are milliseconds since 1970 by this machine's clock. */
  | { kind: 'lost'; since: number; why: string; retryAt: number }
  | { kind: 'token'; message: string }
  | { kind: 'forbidden'; message: string };

/** Without a word for so long, the connection counts as lost, in milliseconds. */
export const SILENCE = 5000;
/** A request that is not answered for so long is given up, in milliseconds. */
const PATIENCE = 20_000;
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15_000;

/** What was read is of no use any more. */
class Reset extends Error {}
const RESTARTED = 'restarted';

const NAMESPACE = 'statusbridge-namespace';

export class Connection {
  link: Link = { kind: 'starting' };
  fleet: Fleet | null = null;
  /** Only this namespace is asked for; all of them where it is empty. */
  namespace = sessionStorage.getItem(NAMESPACE) ?? '';
  /** By how much the server's clock is ahead of this machine's, in seconds: at least, since this attempt began. */
  private ahead = 0;
  /** Time of the newest picture that the server has told of, in milliseconds since 1970. */
  private evaluated = -Infinity;
  /** When the server was heard last: milliseconds since 1970, and since this page was opened. */
  private heard = 0;
  private heardMonotonic = 0;
  private attempt = new AbortController();
  private began = 0;
  private listeners = new Set<() => void>();
  private wake: () => void = () => {};

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  start(): void {
    setInterval(() => this.check(), 250);
    document.addEventListener('visibilitychange', () => this.check());
    addEventListener('offline', () => this.lose('this machine is offline'));
    addEventListener('online', () => this.wake());
    void this.run();
  }

  /** Begins anew, with another token or namespace. */
  restart(namespace = this.namespace): void {
    this.namespace = namespace;
    sessionStorage.setItem(NAMESPACE, namespace);
    this.fleet = null;
    this.set({ kind: 'starting' });
    this.attempt.abort(RESTARTED);
    this.wake();
  }

  /** Tries again now. */
  retry(): void {
    this.wake();
  }

  /** Whether what is shown is what the server says now. */
  get isCurrent(): boolean {
    return this.link.kind === 'live' && this.fleet?.silent === null;
  }

  /** The present by the server's clock. */
  now(): number {
    return Date.now() / 1000 + this.offset;
  }

  /** Up to when anything is known: no soak goes on without evidence. */
  known(): number {
    if (this.link.kind === 'lost') return this.heard / 1000 + this.offset;
    const asOf = Date.parse(this.fleet?.asOf ?? '') / 1000;
    return this.fleet?.silent && asOf ? asOf : this.now();
  }

  private get offset(): number {
    return Number.isFinite(this.ahead) ? this.ahead : 0;
  }

  private emit(): void {
    for (const listener of this.listeners) listener();
  }

  private set(link: Link): void {
    this.link = link;
    this.emit();
  }

  private check(): void {
    // The one clock stands still while the machine sleeps, the other one may be set.
    const quiet = Math.max(Date.now() - this.heard, performance.now() - this.heardMonotonic);
    if (this.link.kind === 'live' && quiet > SILENCE) {
      this.lose(`the server has told nothing new for ${SILENCE / 1000} s`);
    }
    const waits = this.link.kind === 'lost' || this.link.kind === 'starting';
    if (waits && Date.now() - this.began > PATIENCE) {
      this.attempt.abort(new Reset(`the server has told nothing new for ${PATIENCE / 1000} s`));
    }
  }

  private lose(why: string): void {
    if (this.link.kind !== 'live') return;
    this.set({ kind: 'lost', since: this.heard, why, retryAt: Date.now() });
    this.attempt.abort(new Error(why));
  }

  private async run(): Promise<never> {
    let pause = FIRST_PAUSE;
    let reread = true;
    for (;;) {
      this.attempt = new AbortController();
      this.began = Date.now();
      const { signal } = this.attempt;
      const heard = this.heard;
      try {
        if (reread || !this.fleet) await this.snapshot(signal);
        reread = false;
        await this.follow(signal);
        throw new Error('the server ended the connection');
      } catch (error) {
        if (signal.reason === RESTARTED) continue;
        if (this.heard > heard) pause = FIRST_PAUSE;
        if (error instanceof Refusal && (error.status === 401 || error.status === 403)) {
          // The rights are others than before: nothing that was seen with the old ones stays.
          this.fleet = null;
          this.set({ kind: error.status === 401 ? 'token' : 'forbidden', message: error.message });
          await new Promise<void>((wake) => (this.wake = wake));
          continue;
        }
        reread ||= error instanceof Reset || signal.reason instanceof Reset;
        const why = signal.aborted ? (signal.reason as Error).message : (error as Error).message;
        const since = this.link.kind === 'lost' ? this.link.since : this.heard || Date.now();
        this.set({ kind: 'lost', since, why, retryAt: Date.now() + pause });
        await this.rest(pause);
        this.began = Date.now();
        pause = Math.min(LONGEST_PAUSE, pause * 2);
      }
    }
  }

  private rest(pause: number): Promise<void> {
    return new Promise((wake) => {
      const timer = setTimeout(wake, pause * (0.75 + Math.random() / 2));
      this.wake = () => {
        clearTimeout(timer);
        wake();
      };
    });
  }

  private get scope(): string {
    return this.namespace ? `namespace=${encodeURIComponent(this.namespace)}` : '';
  }

  private async snapshot(signal: AbortSignal): Promise<void> {
    const response = await request(`fleet?${this.scope}`, signal);
    const snapshot = (await response.json()) as Snapshot;
    signal.throwIfAborted();
    this.fleet = read(snapshot, this.fleet?.steps);
    this.evaluated = this.ahead = -Infinity;
    if (this.hear()) this.set({ kind: 'live' });
  }

  /** Whether the server says anything new: one that repeats an old picture is not heard. */
  private hear(): boolean {
    const [at, now] = [Date.parse(this.fleet?.evaluatedAt ?? ''), Date.now()];
    // A picture is never from the future, so that the server's clock is at least as far. It may be old, while the server is silent.
    this.ahead = Math.max(this.ahead, (at - now) / 1000 || -Infinity);
    if (at <= this.evaluated && this.fleet?.silent === null) return false;
    this.evaluated = at;
    this.heard = now;
    this.heardMonotonic = performance.now();
    return true;
  }

  private async follow(signal: AbortSignal): Promise<void> {
    const cursor = encodeURIComponent(this.fleet?.cursor ?? '');
    const tail = this.scope ? `&${this.scope}` : '';
    const response = await request(`fleet/changes?cursor=${cursor}${tail}`, signal, 'text/event-stream');
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    const take = parser();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      try {
        for (const event of take(value)) this.take(event.event, event.data);
      } catch (error) {
        // Half of it may be in the fleet.
        throw error instanceof Reset ? error : new Reset(`what the server sent cannot be read: ${(error as Error).message}`);
      }
    }
  }

  private take(event: string, data: string): void {
    if (event === 'reset') throw new Reset((JSON.parse(data) as { message?: string }).message ?? 'the server began anew');
    if (event !== 'changes' || !this.fleet) return;
    apply(this.fleet, JSON.parse(data) as Changes);
    if (this.hear() && this.link.kind !== 'live') this.set({ kind: 'live' });
    else this.emit();
  }
}
