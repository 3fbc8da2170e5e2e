import { expect, test } from 'vitest';
import { parser } from './events';

test('an event comes in pieces, wherever they are cut', () => {
  const text = ': hello\r\nevent: changes\r\ndata: {"a":\ndata: 1}\n\nevent: reset\ndata:x\n\n';
  const expected = [{ event: 'changes', data: '{"a":\n1}' }, { event: 'reset', data: 'x' }];
  for (let size = 1; size <= text.length; size += 1) {
    const take = parser();
    const found = [];
    for (let at = 0; at < text.length; at += size) found.push(...take(text.slice(at, at + size)));
    expect(found).toEqual(expected);
  }
});

test('what has no data is no event, and what is not complete is none yet', () => {
  const take = parser();
  expect(take('event: changes\n\n')).toEqual([]);
  expect(take('data: 1\n')).toEqual([]);
  expect(take('\n')).toEqual([{ event: 'message', data: '1' }]);
});
