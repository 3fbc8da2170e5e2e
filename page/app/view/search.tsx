// Search by name, from everywhere with `/`.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Fleet } from '../model/fleet';
import { type Hit, search } from '../model/search';
import { clusterAddress, gateAddress, packageAddress, rolloutAddress } from '../route';

const MOST = 12;

function addressOf({ kind, name }: Hit): string {
  return { cluster: clusterAddress, gate: gateAddress, rollout: rolloutAddress, package: packageAddress }[kind](name);
}

export function Search({ fleet }: { fleet: Fleet | null }) {
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  const hits = useMemo(() => (fleet ? search(fleet, text, MOST) : []), [fleet, fleet?.changed, text]);
  const isOpen = text.trim() !== '';

  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if (event.key !== '/' || (event.target as HTMLElement).matches('input, select, textarea')) return;
      event.preventDefault();
      input.current?.focus();
      input.current?.select();
    };
    addEventListener('keydown', listen);
    return () => removeEventListener('keydown', listen);
  }, []);

  const close = () => {
    setText('');
    setChosen(0);
    input.current?.blur();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Escape') close();
    else if (event.key === 'ArrowDown') setChosen(Math.min(hits.length - 1, chosen + 1));
    else if (event.key === 'ArrowUp') setChosen(Math.max(0, chosen - 1));
    else if (event.key === 'Enter' && hits[chosen]) {
      location.hash = addressOf(hits[chosen]);
      close();
    } else return;
    event.preventDefault();
  };

  return (
    <div class="search">
      <input
        ref={input}
        type="search"
        role="combobox"
        list={undefined}
        aria-label="Search packages, clusters, gates and rollouts"
        aria-expanded={isOpen}
        aria-controls="hits"
        aria-autocomplete="list"
        aria-activedescendant={hits[chosen] ? `hit-${chosen}` : undefined}
        placeholder="Search"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setChosen(0);
        }}
        onKeyDown={onKeyDown}
      />
      {!isOpen && <kbd aria-hidden="true">/</kbd>}
      <div class={isOpen ? 'hits' : 'hits none'} id="hits" role="listbox" aria-label="Found">
        {hits.map((hit, place) => (
          <a
            key={hit.kind + hit.name}
            id={`hit-${place}`}
            role="option"
            aria-selected={place === chosen}
            class={place === chosen ? 'chosen' : ''}
            href={addressOf(hit)}
            tabIndex={-1}
            onClick={close}
          >
            {hit.name} <span class="dim">{hit.kind}</span>
          </a>
        ))}
        {isOpen && hits.length === 0 && (
          <span role="option" aria-selected="false" aria-disabled="true" class="dim">
            Nothing has this in its name.
          </span>
        )}
      </div>
    </div>
  );
}
