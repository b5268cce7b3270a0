// Numbers and times as text.
import type {State} from './api';
import type {Value} from './model';

/** A number with six digits; an integer as it is. */
export function number(value: number): string {
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  return String(+value.toPrecision(6));
}

export function shown(value: Value | null | undefined): string {
  if (value === null || value === undefined) return '';
  if (typeof value === 'number') return number(value);
  return typeof value === 'boolean' ? (value ? 'True' : 'False') : value;
}

/** "0.8 s", "12 s", "1 min 20 s", "3 h 5 min", as elsewhere in this framework. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return '';
  if (seconds > 0 && seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

export function time(seconds: number | null | undefined): string {
  return seconds === null || seconds === undefined ? '' : new Date(1000 * seconds).toLocaleTimeString('en-GB');
}

export function date(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return '';
  return new Date(1000 * seconds).toLocaleString('sv-SE');
}

export function count(amount: number, noun: string): string {
  return `${amount} ${noun}${amount === 1 ? '' : 's'}`;
}

export function size(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

const STATES: Record<State, string> = {
  running: 'running',
  finished: 'finished',
  'ended early': 'ended early',
  'driver gone': 'not ended, but its driver is gone',
  unknown: 'not ended',
};

export const stateText = (state: State) => STATES[state];

/** A value of a call's arguments, as Python writes it. */
export function setting(value: unknown): string {
  if (value === null || value === undefined) return 'None';
  if (typeof value === 'boolean') return shown(value);
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
