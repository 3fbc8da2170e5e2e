// The keys, and what the shapes mean.

import { useEffect, useRef } from 'preact/hooks';
import { ORDER, look } from '../model/states';
import { State } from './parts';

const KEYS: [string, string][] = [
  ['/', 'search packages, clusters, gates and rollouts by name'],
  ['← ↑ ↓ →', 'move through the cells of the fleet'],
  ['Home End', 'first and last cluster'],
  ['PgUp PgDn', 'a page of packages up or down'],
  ['n N', 'next and previous cell with trouble'],
  ['Enter', 'open the package of the cell'],
  ['+ −', 'larger and smaller cells'],
  ['f', 'the fleet'],
  ['r', 'the rollouts'],
  ['y', 'copy the address of what you see'],
  ['t', 'dark, light, or as your system is'],
  ['Esc', 'close'],
  ['?', 'this list'],
];

export function Help({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog
      ref={dialog}
      class="help"
      aria-labelledby="help-title"
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && dialog.current?.close()}
    >
      <div class="title">
        <h1 id="help-title">Keys and signs</h1>
        <button aria-label="Close" onClick={() => dialog.current?.close()}>
          ×
        </button>
      </div>
      <div class="columns">
        <dl>
          {KEYS.map(([keys, meaning]) => (
            <div key={keys}>
              <dt>
                {keys.split(' ').map((key) => (
                  <kbd key={key}>{key}</kbd>
                ))}
              </dt>
              <dd>{meaning}</dd>
            </div>
          ))}
        </dl>
        <dl>
          {ORDER.toReversed().map((word) => (
            <div key={word}>
              <dt>
                <State word={word} />
              </dt>
              <dd>{look(word).meaning}</dd>
            </div>
          ))}
        </dl>
      </div>
      <p class="dim">
        Small cells have shapes instead of letters: a low block is good, a triangle is on the way, a line waits, a full cell
        failed, a hollow frame is not proved. A line through a cell: the cluster is excused and does not count.
      </p>
    </dialog>
  );
}
