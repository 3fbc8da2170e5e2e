// The canvas is out of sight for tools that measure contrast: here its colours are held against WCAG AA.

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';

const style = readFileSync(new URL('style.css', import.meta.url), 'utf8');

/** The colours that stand behind a selector. */
function colours(selector: string): Record<string, string> {
  const block = style.slice(style.indexOf(selector)).split('}')[0] ?? '';
  return Object.fromEntries([...block.matchAll(/--([a-z-]+): (#[0-9a-f]{6});/g)].map((found) => [found[1], found[2]]));
}

function luminance(colour: string): number {
  const parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
  const [red, green, blue] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
}

function contrast(one: string, other: string): number {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light! + 0.05) / (dark! + 0.05);
}

const themes = {
  light: colours(':root {'),
  dark: colours(":root[data-theme='dark'] {"),
  'dark by the system': colours(":root:not([data-theme='light']) {"),
};

test('dark is the same, whoever chose it', () => {
  expect(themes['dark by the system']).toEqual(themes.dark);
  expect(Object.keys(themes.dark)).toEqual(Object.keys(themes.light));
});

describe.each(Object.entries(themes))('%s', (_, theme) => {
  const grounds = ['paper', 'stripe', 'ground'];
  const of = (name: string) => theme[name] ?? '#000000';
  test.each(['ink', 'dim', 'accent', 'alarm', 'waiting', 'unproved'])('%s can be read', (name) => {
    for (const ground of grounds) expect(contrast(of(name), of(ground)), ground).toBeGreaterThanOrEqual(4.5);
  });
  test.each([['on-bad', 'bad'], ['on-moving', 'moving'], ['banner-ink', 'banner'], ['paper', 'good']])(
    '%s can be read on %s',
    (ink, ground) => expect(contrast(of(ink), of(ground))).toBeGreaterThanOrEqual(4.5),
  );
  test.each(['good', 'moving', 'waiting', 'bad', 'unproved'])('the shape of %s can be seen', (kind) => {
    for (const ground of grounds) expect(contrast(of(kind), of(ground)), ground).toBeGreaterThanOrEqual(3);
  });
});
