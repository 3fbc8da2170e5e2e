// An address that leads nowhere.

import { fleetAddress } from '../route';

export function Missing({ kind, name }: { kind: string; name: string }) {
  return (
    <article class="page">
      <h1>There is no {kind} {name}</h1>
      <p>
        It was deleted, or you may not see it. <a href={fleetAddress()}>Show the fleet</a>
      </p>
    </article>
  );
}
