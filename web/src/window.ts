// Which rows of a long list are drawn. Pure.

export interface Rows {
  first: number;
  last: number; // exclusive
  above: number; // pixels that the rows before take
  below: number;
}

/** The rows that a scrolled view shows, and a few around them. */
export function visible(count: number, height: number, scrolled: number, view: number, spare = 8): Rows {
  const first = Math.max(0, Math.min(count, Math.floor(scrolled / height) - spare));
  const last = Math.min(count, Math.ceil((scrolled + view) / height) + spare);
  return { first, last: Math.max(first, last), above: first * height, below: Math.max(0, count - Math.max(first, last)) * height };
}
