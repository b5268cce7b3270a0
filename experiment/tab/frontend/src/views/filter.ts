// The filter of the table of trials: terms that must all hold, "status=failed layers=(64, 32) text".
import {shown} from '../format';
import type {Trial} from '../model';
import type {Column} from './trials';

const TERM = /^(.+?)(<=|>=|!=|=|<|>)(.*)$/;

/** What a column is called in a filter. */
export function wordsFor({name, title}: Column): string[] {
  return [name, title.split(' ')[0]];
}

/** Return whether a trial matches; a term without an operator is searched for in all columns. */
export function matches(text: string, columns: Column[]): (trial: Trial) => boolean {
  const terms = split(text).map((term) => one(term, columns));
  return (trial) => terms.every((term) => term(trial));
}

/** Return the terms: spaces end one, but not those between quotes or brackets. */
function split(text: string): string[] {
  const terms = [''];
  let [quote, depth, before] = ['', 0, ' '];
  for (const character of text) {
    if (quote) quote = character === quote ? '' : quote;
    else if (/["']/.test(character) && !/\w/.test(before)) quote = character; // not that of "it's"
    else if (/[([{]/.test(character)) depth++;
    else if (/[)\]}]/.test(character)) depth = Math.max(0, depth - 1);
    if (!quote && !depth && /\s/.test(character)) terms.push('');
    else terms[terms.length - 1] += character;
    before = character;
  }
  return terms.filter(Boolean);
}

function one(term: string, columns: Column[]): (trial: Trial) => boolean {
  const parts = TERM.exec(term);
  const column = parts && columns.find((one) => wordsFor(one).includes(parts[1]));
  if (!parts || !column) {
    const sought = unquoted(term.toLowerCase());
    return (trial) => columns.some(({value}) => shown(value(trial)).toLowerCase().includes(sought));
  }
  const [, , operator, wanted] = parts;
  return (trial) => compare(column.value(trial), operator, wanted);
}

function compare(value: ReturnType<Column['value']>, operator: string, wanted: string): boolean {
  const [words, sought] = [shown(value), wanted].map((text) => text.toLowerCase());
  const same = [sought, `'${sought}'`, unquoted(sought)].includes(words);
  const equal = same || (typeof value === 'number' && value === Number(wanted));
  if (operator === '=') return equal;
  if (operator === '!=') return !equal;
  if (value === null) return false;
  const order = typeof value === 'number' ? value - Number(wanted) : shown(value).localeCompare(unquoted(wanted), 'en', {numeric: true});
  if (operator === '<') return order < 0;
  if (operator === '>') return order > 0;
  return operator === '<=' ? order <= 0 : order >= 0;
}

function unquoted(text: string): string {
  return text.replace(/^(["'])(.*)\1$/, '$2');
}
