// Elements. Text of trials is set as text, never as HTML.
type Attributes = Record<string, string | number | boolean | undefined>;

export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  parent: Element | null,
  text = '',
  attributes: Attributes = {},
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : String(value));
  }
  parent?.append(element);
  return element;
}

/** A labelled choice among names; the titles are shown. One with this label that the parent has is kept: a new menu would be closed. */
export function choice(
  parent: Element,
  label: string,
  names: readonly (readonly [string, string])[],
  chosen: string,
  callback: (name: string) => void,
): void {
  const text = `${label} `;
  const box = [...parent.querySelectorAll('label')].find((one) => one.firstChild?.textContent === text) ?? make('label', parent, text);
  const select = box.querySelector('select') ?? make('select', box);
  const same = names.length === select.length && names.every(([name, title], index) => {
    const {value, textContent} = select.options[index];
    return value === name && textContent === title;
  });
  if (!same) select.replaceChildren(...names.map(([name, title]) => make('option', null, title, {value: name})));
  if (select.value !== chosen) select.value = chosen;
  select.onchange = () => keepingFocus(() => callback(select.value));
}

export function checkbox(parent: Element, label: string, checked: boolean, callback: (checked: boolean) => void): HTMLInputElement {
  const box = make('label', parent, '', {class: 'check'});
  const input = make('input', box, '', {type: 'checkbox'});
  make('span', box, label);
  input.checked = checked;
  input.onchange = () => callback(input.checked);
  return input;
}

export function button(parent: Element, text: string, callback: () => void, attributes: Attributes = {}): HTMLButtonElement {
  const made = make('button', parent, text, {type: 'button', ...attributes});
  made.onclick = callback;
  return made;
}

/** A button that copies a text and says whether it did. */
export function copyButton(parent: Element, text: () => string): void {
  const made = button(parent, 'Copy', () => {
    const done = (copied: boolean) => {
      made.textContent = copied ? 'Copied' : 'Not copied';
      setTimeout(() => (made.textContent = 'Copy'), 1500);
    };
    const bySelection = () => done(copyBySelection(made.closest('dialog') ?? document.body, text()));
    // Without TLS and off the loopback address a browser has no clipboard for scripts.
    if (navigator.clipboard) void navigator.clipboard.writeText(text()).then(() => done(true), bySelection);
    else bySelection();
  });
}

/** Copy a text that is selected for that; return whether the browser did. */
function copyBySelection(parent: Element, text: string): boolean {
  const before = document.activeElement;
  const area = make('textarea', parent); // inside an open dialog: nothing outside it can be selected
  area.value = text;
  area.select();
  const copied = document.execCommand('copy');
  area.remove();
  if (before instanceof HTMLElement) before.focus();
  return copied;
}

/** A table with a head; cells are texts. */
export function table(parent: Element, head: string[], rows: string[][], label: string): HTMLTableElement {
  const made = make('table', parent, '', {'aria-label': label});
  const first = make('tr', make('thead', made));
  for (const title of head) make('th', first, title, {scope: 'col'});
  const body = make('tbody', made);
  for (const cells of rows) {
    const row = make('tr', body);
    cells.forEach((cell, index) => make(index ? 'td' : 'th', row, cell, index ? {} : {scope: 'row'}));
  }
  return made;
}

/** A colour of the style sheet, as it is now: dark or light. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Draw, and give the focus to the same control again if it was made anew: keyboards and screen readers stay there. */
export function keepingFocus(draw: () => void): void {
  const before = document.activeElement;
  const sought = before && [...document.querySelectorAll(before.tagName)].indexOf(before);
  const name = before && nameOf(before);
  draw();
  if (!before || before.isConnected) return;
  const same = [...document.querySelectorAll<HTMLElement>(before.tagName)];
  const named = same.filter((one) => nameOf(one) === name);
  (named.includes(same[sought!]) ? same[sought!] : named[0])?.focus();
}

function nameOf(control: Element): string {
  return control.getAttribute('aria-label') ?? (control.closest('label') ?? control).firstChild?.textContent ?? '';
}
