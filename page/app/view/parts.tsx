// Small parts that several views share.

import type { ComponentChildren } from 'preact';
import type { Excused, Gate, Newcomers } from '../model/api';
import type { Fleet, Package, Step } from '../model/fleet';
import { type Kind, type Part, look, rank } from '../model/states';
import { type Bar, clock, span, unix } from '../model/time';
import { short } from '../model/words';
import { clusterAddress, gateAddress, packageAddress, rolloutAddress } from '../route';

/** A state as a tile with its letter, and its word. */
export function State({ word, bare }: { word: string; bare?: boolean }) {
  const { kind, letter, meaning } = look(word);
  return (
    <span class="state" title={meaning}>
      <span class={`tile ${kind}`} aria-hidden="true">
        {letter}
      </span>
      {bare ? <span class="sr">{word}</span> : word}
    </span>
  );
}

const GATE_KIND: Record<string, Kind> = {
  Open: 'good',
  Waiting: 'moving',
  Stalled: 'bad',
  NotJudged: 'unproved',
  Stale: 'unproved',
  OtherRevision: 'waiting',
};

const GATE_SIGN: Record<string, string> = {
  Open: '✓',
  Waiting: '…',
  Stalled: '✕',
  NotJudged: '?',
  Stale: 'S',
  OtherRevision: '»',
};

/** A round sign with its words. */
export function Sign({ sign: { kind, letter, words } }: { sign: { kind: Kind; letter: string; words: string } }) {
  return (
    <span class="state">
      <span class={`tile round ${kind}`} aria-hidden="true">
        {letter}
      </span>
      {words}
    </span>
  );
}

export function GateState({ gate, bare }: { gate: Gate; bare?: boolean }) {
  const { state } = gate.verdict;
  return (
    <span class="state">
      <span class={`tile round ${GATE_KIND[state] ?? 'unproved'}`} aria-hidden="true">
        {GATE_SIGN[state] ?? '·'}
      </span>
      {bare ? <span class="sr">{state}</span> : state}
    </span>
  );
}

export function Revision({ words }: { words: string | null | undefined }) {
  return (
    <span class="mono" title={words ?? 'none known'}>
      {short(words)}
    </span>
  );
}

/** A time, and how long ago that was. */
export function Since({ at, now }: { at: string | null | undefined; now: number }) {
  const time = unix(at);
  if (time === null) return <span class="dim">–</span>;
  return (
    <time dateTime={at!} title={at!}>
      {clock(time, now)} <span class="dim">{span(now - time)} ago</span>
    </time>
  );
}

/** Counts beside each other in proportion, with what they are in words. */
export function Stack({ parts, total, mark, label }: { parts: Part[]; total: number; mark?: number; label: string }) {
  const words = parts.map((part) => `${part.count} ${part.name}`).join(', ');
  return (
    <span class="stack" role="img" aria-label={`${label}: ${words || 'none'}`} title={words}>
      {parts.map((part) => (
        <span class={`part ${part.kind}`} style={{ flexGrow: part.count }} key={part.name} />
      ))}
      {mark !== undefined && total > 0 && mark <= total && (
        <span class="mark" style={{ left: `${(100 * mark) / total}%` }} />
      )}
    </span>
  );
}

export function packageParts(item: Package, fleet: Fleet): Part[] {
  const parts = item.counts.map((count, state) => ({ name: fleet.states[state] ?? '', count }));
  const some = parts.filter((part) => part.count > 0).map((part) => ({ ...part, kind: look(part.name).kind }));
  return some.sort((a, b) => rank(b.name) - rank(a.name));
}

/** The clusters that need not be healthy now, and until when. */
export function ExcusedList({ excused, count }: { excused: Excused[] | undefined; count: number | undefined }) {
  const listed = excused ?? [];
  if (listed.length === 0) return null;
  const more = (count ?? 0) - listed.length;
  return (
    <ul class="plain" aria-label="Excused clusters">
      {listed.map(({ clusterName, reason, until }) => (
        <li key={clusterName} class="override">
          Excused: <a href={clusterAddress(clusterName)}>{clusterName}</a>, {reason}
          {until && `, until ${until}`}
        </li>
      ))}
      {more > 0 && <li class="dim">and {more} more</li>}
    </ul>
  );
}

/** Clusters that joined after a gate's were frozen. */
export function NewcomersList({ newcomers }: { newcomers: Newcomers | undefined }) {
  if (!newcomers) return null;
  const more = newcomers.count - newcomers.clusters.length;
  return (
    <ul class="plain" aria-label="Newcomers">
      {newcomers.clusters.map((name) => (
        <li key={name}>
          Waits for the next revision: <a href={clusterAddress(name)}>{name}</a>
        </li>
      ))}
      {more > 0 && <li class="dim">and {more} more</li>}
    </ul>
  );
}

/** A time that runs. */
export function Running({ name, bar, end }: { name: string; bar: Bar; end: string }) {
  const left = bar.left > 0 ? `${span(bar.left)} left of ${span(bar.whole)}` : `${end} (${span(bar.whole)})`;
  return (
    <div class="running">
      <span>{name}</span>
      <span
        class="track"
        role="progressbar"
        aria-label={name}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.floor(bar.done * 100)}
        aria-valuetext={left}
      >
        <span class={bar.left > 0 ? 'done' : 'done over'} style={{ width: `${bar.done * 100}%` }} />
      </span>
      <span class="dim num">{left}</span>
    </div>
  );
}

export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** What this page has seen to change, newest first. */
export function Steps({ steps, now, title }: { steps: Step[]; now: number; title: string }) {
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      {steps.length === 0 ? (
        <p class="dim">Nothing has changed since this page was opened.</p>
      ) : (
        <ol class="steps">
          {steps.slice(0, 12).map((step, place) => (
            <li key={`${step.at} ${step.key} ${step.cluster ?? ''} ${place}`}>
              <time class="dim num" dateTime={step.at}>
                {clock(unix(step.at) ?? now, now)}
              </time>
              <span>
                {step.kind !== 'cell' ? (
                  <a href={step.kind === 'gate' ? gateAddress(step.key) : rolloutAddress(step.key)}>{step.key}</a>
                ) : (
                  <>
                    <a href={packageAddress(step.key, { cluster: step.cluster ?? '' })}>{step.key}</a> in{' '}
                    <a href={clusterAddress(step.cluster ?? '')}>{step.cluster}</a>
                  </>
                )}{' '}
                <span class="dim">{step.from} →</span> {step.to}
              </span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}
