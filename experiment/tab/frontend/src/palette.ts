// Colours of trials. Each status has a shape, too, for people who tell colours apart badly.
import {colour} from './dom';
import type {Status} from './model';

export type Shape = 'dot' | 'cross' | 'ring' | 'diamond' | 'star';

const LOOKS: Record<string, [name: string, shape: Shape]> = {
  finished: ['good', 'dot'],
  failed: ['bad', 'cross'],
  stopped: ['stop', 'diamond'],
  cancelled: ['soft', 'cross'],
  running: ['run', 'ring'],
  waiting: ['soft', 'ring'],
  lost: ['lost', 'cross'],
};

export const statusColour = (status: Status | 'lost') => colour(LOOKS[status][0]);
export const statusShape = (status: Status | 'lost') => LOOKS[status][1];

/** Colours of lines that are compared, of equal weight in dark and light. */
export const LINES = ['#1e88e5', '#f4511e', '#43a047', '#8e24aa', '#00acc1', '#c0a000', '#d81b60', '#6d4c41'];

const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

/** The colour of a share of [0, 1]: dark blue for the worst, yellow for the best. */
export function viridis(share: number, alpha = 1): string {
  const place = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const index = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mixed = VIRIDIS[index].map((from, part) => Math.round(from + (VIRIDIS[index + 1][part] - from) * (place - index)));
  return `rgba(${mixed.join(',')},${alpha})`;
}
