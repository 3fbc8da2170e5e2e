import { expect, test } from 'vitest';
import { clusterAddress, fleetAddress, gateAddress, packageAddress, parse, rolloutAddress, rolloutsAddress } from './route';

test.each([
  [fleetAddress(), { view: 'fleet' }, ''],
  [fleetAddress({ group: 'region', state: '' }), { view: 'fleet' }, 'group=region'],
  [packageAddress('a/payments', { cluster: 'eu&1' }), { view: 'package', namespace: 'a', name: 'payments' }, 'cluster=eu%261'],
  [rolloutsAddress(), { view: 'rollouts' }, ''],
  [rolloutAddress('a/payments', { wave: 'eu' }), { view: 'rollout', namespace: 'a', name: 'payments' }, 'wave=eu'],
  [gateAddress('a/wave-1'), { view: 'gate', namespace: 'a', name: 'wave-1' }, ''],
  [clusterAddress('eu/1?#%'), { view: 'cluster', name: 'eu/1?#%' }, ''],
  ['', { view: 'fleet' }, ''],
  ['#/cluster/%E0%A4%A', { view: 'cluster', name: '%E0%A4%A' }, ''],
  ['#/nonsense/a', { view: 'nowhere' }, ''],
  ['#/gate/a', { view: 'nowhere' }, ''],
  ['#/rollouts/a', { view: 'nowhere' }, ''],
])('%s leads where it says', (address, place, query) => {
  const route = parse(address);
  expect([route.place, route.query.toString()]).toEqual([place, query]);
});
