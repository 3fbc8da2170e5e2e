// A rollout as somebody sees it: a wave goes on, a cluster fails, evidence and connection are lost, a token is needed.

import type { BrowserContextOptions, Page } from 'playwright-core';
import { describe, expect, test } from 'vitest';
import { isCurrent, open, violations, within } from './chromium';
import { look } from '../app/model/states';
import { R2, STATES, ago, everyState, judge } from './fleets.mjs';
import { browser, server, url } from './stage';

const OFFLINE = 'Failed to load resource';

const has = (page: Page, text: string) => page.getByText(text).first().waitFor();
const shows = (address: string, options?: BrowserContextOptions) => open(browser, url + address, options);
const counted = async (page: Page, word: string) =>
  (await page.locator('.legend .chip', { hasText: word }).locator('.num').allInnerTexts())[0] ?? '0';

describe('a rollout', () => {
  test('a wave goes on within a second', async () => {
    const { page, close } = await shows('#/package/team-a/payments');
    await isCurrent(page);
    const card = page.locator('.gate', { has: page.getByRole('link', { name: 'payments-eu', exact: true }) });
    await card.locator('.state', { hasText: 'Waiting' }).waitFor();
    await card.getByRole('progressbar', { name: 'Soak' }).waitFor();
    for (const { name, labels } of server.clusters) {
      if (labels?.wave === 'eu') server.setCell('team-a/payments', name, 'Healthy', R2, { since: ago(601) });
    }
    for (const wave of ['eu', 'us']) judge(server, `payments-${wave}`);
    const begin = performance.now();
    server.commit();
    await card.locator('.state', { hasText: 'Open' }).waitFor();
    const took = performance.now() - begin;
    console.log(`a verdict is on the screen after ${took.toFixed(0)} ms`);
    within(took, 1000);
    await has(page, 'Waiting →');
    expect(await page.locator('.waves h3').allInnerTexts()).toEqual(['Wave 1', 'Wave 2', 'Wave 3', 'Wave 4']);
    await close();
  });

  test('a cluster fails: matrix, words, rows and gate say so', async () => {
    const { page, close } = await shows('#/?cell=team-a/payments@euw-4');
    await isCurrent(page);
    const before = Number(await counted(page, 'Failed'));
    server.setCell('team-a/payments', 'euw-4', 'Failed', R2, { reason: 'HealthCheckFailed' });
    judge(server, 'payments-eu');
    server.commit();
    await expect.poll(() => counted(page, 'Failed')).toBe(String(before + 1));
    const cell = page.getByRole('gridcell');
    expect(await cell.getAttribute('aria-label')).toContain('team-a/payments in euw-4: Failed');
    await page.locator('.inspector', { hasText: 'HealthCheckFailed' }).waitFor();
    await cell.focus();
    await page.keyboard.press('Enter');
    await page.waitForURL(/#\/package\/team-a\/payments\?cluster=euw-4/);
    const rows = page.locator('table.rows tbody tr');
    await rows.getByText('HealthCheckFailed').waitFor();
    await rows.getByText('reported by management-1').waitFor();
    expect(await rows.count()).toBe(1);
    await page.getByText('FailureBudgetExceeded').first().waitFor();
    await page.getByRole('link', { name: 'payments-eu', exact: true }).click();
    await page.locator('.verdict', { hasText: 'Stalled' }).waitFor();
    await close();
  });
});

test('a cluster that is excused is struck in the matrix, counts nowhere, and is named with its reason', async () => {
  const { page, close } = await shows('#/?cell=team-a/payments@euw-4&size=24');
  await isCurrent(page);
  const cell = page.getByRole('gridcell');
  expect(await cell.getAttribute('aria-label')).not.toContain('excused');
  const ratio = page.locator('.side', { hasText: 'payments' }).locator('.ratio');
  const before = await ratio.innerText();
  server.excuse('team-a/payments', 'euw-4', 'the site is being moved');
  server.commit();
  await expect.poll(() => cell.getAttribute('aria-label')).toContain('; excused: the site is being moved');
  await page.locator('.inspector .override', { hasText: 'excused: the site is being moved' }).waitFor();
  expect(await ratio.innerText()).not.toBe(before);
  expect(await violations(page)).toEqual([]);
  await cell.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('list', { name: 'Excused clusters' }).getByText('euw-4').waitFor();
  await page.locator('table.rows').getByText('excused: the site is being moved').waitFor();
  await close();
});

describe('old states', () => {
  const isGrey = (page: Page) =>
    page.waitForFunction(() => {
      const main = document.querySelector('main')!;
      return main.dataset.current === 'false' && getComputedStyle(main).filter === 'grayscale(1)';
    });

  test('when evidence is lost, the page says so and greys out', async () => {
    const { page, close } = await shows('');
    await isCurrent(page);
    server.silent = 'The metrics backend does not answer';
    server.lag = 95;
    server.send(server.event());
    await isGrey(page);
    const banner = page.locator('.banner');
    expect(await page.title()).toMatch(/^Not current: /);
    expect(await banner.innerText()).toMatch(/Not current\. The metrics backend does not answer.*1m 3\ds ago/s);
    expect(await violations(page)).toEqual([]);
    server.silent = null;
    server.lag = 2;
    server.send(server.event());
    await isCurrent(page);
    expect(await banner.count()).toBe(0);
    await close();
  });

  test('when the connection drops, it greys out, comes back, and never shows an old state as a new one', async () => {
    const { page, close } = await shows('');
    await isCurrent(page);
    const before = Number(await counted(page, 'Failed'));
    // Whatever the page says at the very moment when it calls itself current again.
    await page.evaluate(() => {
      const seen: string[] = [];
      Object.assign(window, { seen });
      const main = document.querySelector('main')!;
      new MutationObserver(() => {
        if (main.dataset.current === 'true') seen.push(document.querySelector('.legend .chip')!.textContent!);
      }).observe(main, { attributeFilter: ['data-current'] });
    });
    server.drop();
    await isGrey(page);
    expect(await page.locator('.banner').innerText()).toMatch(/The connection was lost at \d\d:\d\d:\d\d: .*Trying again/s);
    server.setCell('team-a/payments', 'us-2', 'Failed', R2, { reason: 'HealthCheckFailed' });
    server.commit();
    expect(await counted(page, 'Failed')).toBe(String(before));
    server.accept();
    await page.getByRole('button', { name: 'Try now' }).click();
    await isCurrent(page);
    const seen = await page.evaluate(() => (window as unknown as { seen: string[] }).seen);
    expect(seen).toEqual([`FFailed${before + 1}`]);
    await close(OFFLINE);
  });

  test('when the server says nothing for five seconds, that is a lost connection too', async () => {
    const { page, close } = await shows('');
    await isCurrent(page);
    server.hang();
    const begin = performance.now();
    await isGrey(page);
    expect(performance.now() - begin).toBeGreaterThan(3900);
    expect(await page.getByRole('alert').innerText()).toContain('the server has told nothing new for 5 s');
    expect(await page.locator('.evidence').innerText()).toMatch(/Lost.*evidence [67]s old/s);
    await isCurrent(page);
    await close();
  });

  test('a server that repeats an old picture is not current, and its evidence grows older', async () => {
    const { page, close } = await shows('');
    await isCurrent(page);
    server.frozen = Date.now();
    await isGrey(page);
    await page.locator('.evidence', { hasText: /Lost evidence ([6-9]|1\d)s old/ }).waitFor();
    server.silent = 'the loop does not answer';
    await page.locator('.evidence', { hasText: /Silent evidence ([7-9]|1\d)s old/ }).waitFor();
    [server.frozen, server.silent] = [null, null];
    await isCurrent(page);
    await close();
  });

  test('a server that began anew is read anew', async () => {
    const { page, close } = await shows('');
    await isCurrent(page);
    server.setCell('team-a/checkout', 'us-2', 'TimeOut', 'v1');
    server.pending.clear();
    server.restart();
    await expect.poll(() => counted(page, 'TimeOut'), { timeout: 10_000 }).toBe('1');
    await isCurrent(page);
    await close(OFFLINE);
  });

  test('after an answer that cannot be read, the fleet is read anew', async () => {
    const { page, close } = await shows('');
    await isCurrent(page);
    server.setCell('team-a/checkout', 'us-2', 'TimeOut', 'v1');
    server.pending.clear();
    server.sendRaw('event: changes\ndata: {"cursor":\n\n');
    await isGrey(page);
    await expect.poll(() => counted(page, 'TimeOut')).toBe('1');
    await isCurrent(page);
    await close();
  });

  test('what was seen with rights that are gone is shown no more', async () => {
    const { page, close } = await shows('');
    await isCurrent(page);
    server.drop();
    server.refuses = false;
    server.token = 'x';
    await page.getByRole('heading', { name: 'A token is needed' }).waitFor();
    expect(await page.locator('.matrix').count()).toBe(0);
    await close(OFFLINE);
  });
});

describe('rights', () => {
  test('a token is asked for, stays in the tab, and is in no address', async () => {
    server.token = 'secret-token';
    const { page, close } = await shows('#/package/team-a/payments');
    const field = page.getByLabel('Bearer token of the hub');
    await field.fill('wrong');
    expect(await violations(page)).toEqual([]);
    await page.keyboard.press('Enter');
    await has(page, 'the hub does not know this token');
    await field.fill('secret-token');
    await page.keyboard.press('Enter');
    await isCurrent(page);
    await page.locator('table.rows tbody tr').first().waitFor();
    const kept = await page.evaluate(() => [JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie]);
    expect(kept.map((text) => text.includes('secret-token'))).toEqual([true, false, false]);
    expect(server.requests.filter((path) => path.includes('secret'))).toEqual([]);
    expect(page.url()).not.toContain('secret');
    await close(OFFLINE);
  });

  test('who may see one namespace only can choose it', async () => {
    server.onlyNamespace = 'team-a';
    const { page, close } = await shows('#/package/team-a/payments');
    await has(page, 'you may not list fleetpackages.statusbridge.dev in all namespaces');
    expect(await violations(page)).toEqual([]);
    await page.getByRole('button', { name: 'Show it' }).click();
    await isCurrent(page);
    await page.keyboard.press('f');
    await page.locator('.side').first().waitFor();
    expect(await page.locator('.side').count()).toBe(3);
    server.onlyNamespace = 'team-b';
    await page.evaluate(() => (location.hash = '#/package/team-b/search'));
    await page.getByRole('button', { name: 'Show team-b' }).click();
    await page.getByRole('heading', { name: 'search team-b' }).waitFor();
    await close(OFFLINE);
  });
});

describe('addresses', () => {
  test.each([
    ['#/package/team-a/payments?state=Progressing', 'table.rows tbody tr', 3],
    ['#/package/team-a/payments?wave=payments-canary', 'table.rows tbody tr', 2],
    ['#/package/team-a/payments?cluster=euc-5', 'table.rows tbody tr', 1],
    ['#/cluster/euc-5', 'table.rows tbody tr', 13],
    ['#/gate/team-a/payments-eu', '.waits li', 2],
    ['#/?namespace=team-b', '.side', 3],
    ['#/?state=Unverified', '.side', 1],
  ])('%s', async (address, selector, count) => {
    const { page, close } = await shows(address);
    await isCurrent(page);
    await expect.poll(() => page.locator(selector).count()).toBe(count);
    await close();
  });

  test.each(['#/package/team-a/nothing', '#/gate/x/y', '#/nowhere/at/all'])('%s leads back', async (address) => {
    const { page, close } = await shows(address);
    await page.getByRole('heading', { name: 'There is no' }).waitFor();
    await page.getByRole('link', { name: 'Show the fleet' }).click();
    await page.locator('.matrix').waitFor();
    await close();
  });
});

test('all of it can be reached by keys', async () => {
  const { page, close } = await shows('#/?group=region');
  await isCurrent(page);
  const label = () => page.getByRole('gridcell').getAttribute('aria-label');
  await page.keyboard.press('ArrowRight');
  await expect.poll(label).toContain('data/kafka in ap-2');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('End');
  await expect.poll(label).toContain('data/postgres-operator in us-16');
  await page.keyboard.press('n');
  await expect.poll(label).toContain('platform/kyverno in ap-4: Stale');
  await page.keyboard.press('N');
  await expect.poll(label).toContain('data/kafka in us-9: Unverified');
  await page.waitForURL(/cell=data%2Fkafka%40us-9/);
  await page.keyboard.press('+');
  await page.waitForURL(/size=24/);
  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keys and signs' }).waitFor();
  expect(await violations(page)).toEqual([]);
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.keyboard.press('t');
  expect(await page.evaluate(() => document.documentElement.dataset.theme)).toBe('dark');
  await page.keyboard.press('/');
  await page.keyboard.type('payments-e');
  expect(await violations(page)).toEqual([]);
  await page.keyboard.press('Enter');
  await page.waitForURL(/#\/gate\/team-a\/payments-eu$/);
  await page.keyboard.press('f');
  await page.waitForURL(/#\/$/);
  await close();
});

describe.each([
  ['light', { colorScheme: 'light' }],
  ['dark', { colorScheme: 'dark' }],
  ['phone', { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true }],
] as [string, BrowserContextOptions][])('%s', (_, options) => {
  test.each(['#/?group=region&cell=team-a/payments@euc-5', '#/package/team-a/payments', '#/gate/team-a/payments-eu', '#/cluster/euc-5'])(
    '%s keeps WCAG AA and the width',
    async (address) => {
      const { page, close } = await shows(address, options);
      await isCurrent(page);
      await page.locator('.matrix, table').first().waitFor();
      expect(await violations(page)).toEqual([]);
      const beyond = await page.evaluate(() => {
        const { scrollWidth, clientWidth } = document.querySelector('main')!;
        return [scrollWidth - clientWidth, document.documentElement.scrollWidth - innerWidth];
      });
      expect(beyond).toEqual([0, 0]);
      await close();
    },
  );
});

test('nothing moves for those who do not want it', async () => {
  const { page, close } = await shows('#/package/team-a/payments', { reducedMotion: 'reduce' });
  await isCurrent(page);
  const bar = page.getByRole('progressbar').first().locator('.done');
  expect(await bar.evaluate((element) => getComputedStyle(element).transitionDuration)).toBe('0s');
  await close();
});

test('a fleet without anything, and objects that cannot be read, are shown as that', async () => {
  server.packages.clear();
  server.gates.clear();
  server.clusters.length = 0;
  const { page, close } = await shows('');
  await has(page, 'There are no FleetPackages here that you may see.');
  const verdict = { open: false, state: 'Stalled', reason: 'InvalidSpec', message: 'missing field revision' };
  server.setGate({ metadata: { namespace: 'a', name: 'broken', generation: 1 }, verdict });
  server.addPackage({ metadata: { namespace: 'a', name: 'odd' }, spec: undefined, wanted: undefined, status: undefined }, {});
  server.pending.set('a/odd', new Map());
  server.commit();
  await has(page, '1 stalled');
  await page.evaluate(() => (location.hash = '#/gate/a/broken'));
  await has(page, 'the spec cannot be read');
  await page.evaluate(() => (location.hash = '#/package/a/odd'));
  await has(page, 'the spec cannot be read');
  await close();
});

test('names are text, whatever stands in them', async () => {
  const name = '"><img src=x onerror=alert(1)> + 1';
  server.clusters[4] = { name, labels: { region: '<b>eu</b>' } };
  const { page, close } = await shows(`#/?group=region&cell=team-a/payments@${encodeURIComponent(name)}`);
  await isCurrent(page);
  expect(await page.getByRole('gridcell').getAttribute('aria-label')).toContain(name);
  await page.locator('.inspector').getByRole('link', { name }).click();
  await page.getByRole('heading', { name }).waitFor();
  await page.getByRole('link', { name: 'payments' }).click();
  await expect.poll(() => page.locator('table.rows tbody tr').count()).toBe(1);
  expect(await page.locator('main img').count()).toBe(0);
  await close();
});

describe.each(['light', 'dark'] as const)('states are told without colour in the %s', (colorScheme) => {
  /** For each state which pixels of its cell are not ground, as text. */
  async function shapes(size: number, excused: string[] = []): Promise<string[]> {
    const fleet = everyState();
    for (const { name } of fleet.clusters) if (excused.some((word) => name.endsWith(word))) fleet.excuse('a/p', name, 'moved');
    const { page, close } = await open(browser, `${await fleet.listen()}#/?size=${size}`, { colorScheme });
    await isCurrent(page);
    await page.locator('.side').waitFor();
    const found = await page.evaluate(
      ([size, count]) => {
        const canvas = document.querySelector('canvas')!;
        const context = canvas.getContext('2d')!;
        const { offsetWidth: left, offsetTop: top } = document.querySelector<HTMLElement>('.sides')!;
        return Array.from({ length: count! }, (_, at) => {
          const { data } = context.getImageData(left + at * size!, top, size!, 29);
          const ground = data.slice(0, 3);
          const differs = (pixel: number) => [0, 1, 2].some((part) => Math.abs(data[pixel * 4 + part]! - ground[part]!) > 60);
          return Array.from({ length: data.length / 4 }, (_, pixel) => (differs(pixel) ? '#' : '.')).join('');
        });
      },
      [size, STATES.length],
    );
    await close();
    await fleet.close();
    return found;
  }

  test('small cells have a shape for each kind', async () => {
    const found = await shapes(7);
    const byKind = new Map(STATES.map((word, at) => [look(word).kind, found[at]!]));
    expect(found).toEqual(STATES.map((word) => byKind.get(look(word).kind)));
    expect(new Set(byKind.values()).size).toBe(5);
    expect(found.filter((shape) => !shape.includes('#'))).toEqual([]);
  });

  test.each([7, 24])('cells of %d pixels of clusters that are excused are struck', async (size) => {
    const [plain, struck] = [await shapes(size), await shapes(size, ['Failed', 'Healthy'])];
    const other = STATES.filter((_, at) => plain[at] !== struck[at]);
    expect(other).toEqual(STATES.filter((word) => ['Failed', 'Healthy'].includes(word)));
    // From the lower left to the upper right.
    const [rows, shape] = [29, struck[STATES.indexOf('Healthy')]!];
    const inked = [0.3, 0.5, 0.7].map((part) => {
      const column = Math.floor(size * part);
      return Array.from({ length: rows }, (_, row) => row).filter((row) => shape[row * size + column] === '#')[0]!;
    });
    expect(inked).toEqual([...inked].sort((a, b) => b - a));
    expect(new Set(inked).size).toBe(3);
  });

  test('large cells have a letter for each state', async () => {
    expect(new Set(await shapes(24)).size).toBe(STATES.length);
  });
});
