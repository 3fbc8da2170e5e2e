import { expect, test } from 'vitest';
import { steps } from './adoption';

test('a count holds until the next one', () => {
  expect(steps([[0, 1], [50, 4]], 0, 100, 4)).toBe('M0.0,120.0V92.0H210.0V8.0H420.0');
});

test('one time alone, and no clusters, are drawn too', () => {
  expect(steps([[5, 0]], 5, 5, 0)).toBe('M420.0,120.0V120.0H420.0');
  expect(steps([], 0, 1, 3)).toBe('');
});
