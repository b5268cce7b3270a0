// The population after each generation, made from what the searcher accepted; without a barrier, after each selection.
import type {Run, Selection, Trial} from '../model';
import type {Scale} from '../scale';

export interface Stage {
  title: string;
  /** The members of the population. */
  members: number[];
  /** The selections since the stage before. */
  selections: Selection[];
}

/** Return the stages of a population, and whether they are generations. */
export function stagesOf(run: Run): {stages: Stage[]; generations: boolean} {
  const numbers = run.selections.map(({trial}) => run.trials.get(trial)?.generation ?? null);
  // Without a barrier trials of two generations end in any order, and may happen to end in this one.
  const barrier = run.facts.algorithm.generational !== false;
  const generations = barrier && numbers.every((number, index) => number !== null && (!index || number >= (numbers[index - 1] ?? 0)));
  const every = generations ? 1 : Math.max(1, Math.ceil(run.selections.length / 200));
  const members: number[] = [];
  const stages: Stage[] = [];
  let since: Selection[] = [];
  run.selections.forEach((selection, index) => {
    apply(members, selection);
    since.push(selection);
    const last = index + 1 === run.selections.length;
    if (generations ? last || numbers[index + 1] !== numbers[index] : last || (index + 1) % every === 0) {
      stages.push({title: generations ? `generation ${numbers[index]}` : `after ${index + 1} trials`, members: [...members], selections: since});
      since = [];
    }
  });
  return {stages, generations};
}

function apply(members: number[], {trial, accepted, holder}: Selection): void {
  const place = holder === null ? -1 : members.indexOf(holder);
  if (!accepted) {
    if (members.includes(trial)) members.splice(members.indexOf(trial), 1); // it left
    return;
  }
  if (place >= 0) members[place] = trial;
  else members.push(trial);
}

/** The mean distance of the members from their middle, in units of the space's edges; 0 if all are equal. */
export function diversity(trials: Trial[], scales: [string, Scale][]): number {
  if (trials.length < 2 || !scales.length) return 0;
  let sum = 0;
  for (const [name, scale] of scales) {
    const places = trials.map((trial) => scale.at(trial.params[name])).filter((at): at is number => at !== null);
    const mean = places.reduce((a, b) => a + b, 0) / (places.length || 1);
    sum += Math.sqrt(places.reduce((a, b) => a + (b - mean) ** 2, 0) / (places.length || 1));
  }
  return sum / scales.length;
}
