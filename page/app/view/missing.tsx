// An address that leads nowhere.

import { fleetAddress } from '../route';
import { useConnection } from './context';

/** `namespace` is the one of the object, if it has one. */
export function Missing({ kind, name, namespace = '' }: { kind: string; name: string; namespace?: string }) {
  const connection = useConnection();
  const elsewhere = namespace !== '' && connection.namespace !== '' && connection.namespace !== namespace;
  return (
    <article class="page">
      <h1>
        There is no {kind} {name}
      </h1>
      {elsewhere ? (
        <p>
          This tab shows the namespace {connection.namespace} only.{' '}
          <button onClick={() => connection.restart(namespace)}>Show {namespace}</button>
        </p>
      ) : (
        <p>
          It was deleted, or you may not see it. <a href={fleetAddress()}>Show the fleet</a>
        </p>
      )}
    </article>
  );
}
