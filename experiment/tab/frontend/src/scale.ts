// Scales of axes: where a value lies between 0 and 1, and what is written along the axis.
import {number, shown} from './format';
import type {Domain, Run, Trial, Value} from './model';

const MOST_TICKS = 20; // beside huge values a step may be too small to add up

export interface Tick {
  at: number;
  text: string;
}

export interface Scale {
  title: string;
  /** The place of a value; null where it has none. */
  at(value: Value | null | undefined): number | null;
  ticks: Tick[];
}

export function linear(title: string, low: number, high: number, text: (value: number) => string = number): Scale {
  const span = high - low || 1;
  const at = (value: Value | null | undefined) => (typeof value === 'number' ? (value - low) / span : null);
  const step = niceStep(span / 6);
  const ticks: Tick[] = [];
  const first = Math.ceil(low / step);
  for (let index = 0; index < MOST_TICKS && (first + index) * step <= high + step * 1e-6; index++) {
    const value = (first + index) * step;
    ticks.push({at: at(value)!, text: text(+value.toPrecision(12))});
  }
  return {title, at, ticks};
}

export function logarithmic(title: string, low: number, high: number): Scale {
  const [from, to] = [Math.log10(low), Math.log10(high)];
  const span = to - from || 1;
  const at = (value: Value | null | undefined) => (typeof value === 'number' && value > 0 ? (Math.log10(value) - from) / span : null);
  const ticks: Tick[] = [];
  const factors = span > 3 ? [1] : span > 1 ? [1, 3] : [1, 2, 3, 5, 7];
  for (let power = Math.floor(from); power <= Math.ceil(to); power++) {
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) ticks.push({at: at(value)!, text: number(value)});
    }
  }
  return {title: `${title} (log)`, at, ticks};
}

/** A text for the axis; what is cut from a long one is its middle: its end has the hash that tells it apart. */
function short(text: string): string {
  return text.length > 24 ? `${text.slice(0, 14)}…${text.slice(-9)}` : text;
}

export function categorical(title: string, values: Value[]): Scale {
  const key = (value: Value) => `${typeof value} ${value}`;
  const places = new Map(values.map((value, index) => [key(value), (index + 0.5) / values.length]));
  const at = (value: Value | null | undefined) => (value === null || value === undefined ? null : (places.get(key(value)) ?? null));
  const every = Math.ceil(values.length / 20);
  const ticks = values.filter((_, index) => index % every === 0).map((value) => ({at: at(value)!, text: short(shown(value))}));
  return {title, at, ticks};
}

/** The scale of a hyperparameter: by its domain; without a search space by the values there are. */
export function scaleOf(run: Run, name: string, trials: Iterable<Trial>): Scale {
  const domain: Domain | undefined = Object.hasOwn(run.space, name) ? run.space[name] : undefined;
  const found: Value[] = [];
  for (const trial of trials) {
    const value = trial.params[name];
    if (value !== null && value !== undefined) found.push(value);
  }
  const numbers = found.filter((value): value is number => typeof value === 'number');
  if (domain?.values) {
    const ascending = domain.values.every((value, index, all) => typeof value === 'number' && (!index || value > (all[index - 1] as number)));
    return ascending && domain.values.length > 20 ? ofNumbers(name, domain.values as number[]) : categorical(name, domain.values);
  }
  if (domain && domain.low !== undefined && domain.high !== undefined) {
    if (domain.log) return logarithmic(name, domain.low, domain.high);
    const half = domain.low === domain.high ? 0.5 : 0;
    return linear(name, domain.low - half, domain.high + half);
  }
  if (numbers.length === found.length && new Set(numbers).size > 8) return ofNumbers(name, numbers);
  const distinct = [...new Map(found.map((value) => [`${typeof value} ${value}`, value])).values()];
  if (numbers.length === found.length) distinct.sort((a, b) => (a as number) - (b as number));
  return categorical(name, distinct);
}

function ofNumbers(name: string, values: number[]): Scale {
  const low = values.reduce((a, b) => Math.min(a, b), Infinity);
  const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  return low > 0 && high / low >= 1000 ? logarithmic(name, low, high) : linear(name, low, high);
}

/** The scale of counts, with whole ticks. */
export function counts(title: string, high: number): Scale {
  const scale = linear(title, 0, Math.max(1, high));
  scale.ticks = scale.ticks.filter((tick) => /^\d+$/.test(tick.text));
  return scale;
}

function niceStep(rough: number): number {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
}
