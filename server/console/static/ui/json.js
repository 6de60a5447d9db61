// Reading JSON as it is written: numbers keep their digits, and a mistake has its line and column.

class Mistake {
  constructor(at, message) { Object.assign(this, { at, message }); }
}

const string = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const number = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.+-])/y;
const word = /[^\s,:[\]{}"]+/y;

export function readJSON(text) {
  let at = 0;
  const fail = (message, position = at) => { throw new Mistake(position, message); };
  const skip = () => { while (' \t\n\r'.includes(text[at] || 'x')) at++; return text[at]; };
  const take = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text)?.[0];
    at += found?.length ?? 0;
    return found;
  };

  // value returns the value at the position with line breaks and indentation.
  const value = (indent) => {
    if (indent.length > 400) throw new RangeError('too deep');
    const c = skip();
    if (c === undefined) fail('A value is missing here.');
    if (c === '{') return list('{', '}', indent, member);
    if (c === '[') return list('[', ']', indent, value);
    if (c === '"') return take(string) ?? fail('This string has no closing quote, a line break, or an unknown escape.');
    const literal = take(number);
    if (literal) return literal;
    const start = at, name = take(word) ?? fail(`A value is missing before ${c}.`);
    return ['true', 'false', 'null'].includes(name) ? name
      : fail(name[0] === "'" ? 'Use double quotes for texts.' : `${name.slice(0, 40)} is no JSON value. Texts have double quotes.`, start);
  };
  const member = (indent) => {
    if (skip() !== '"') fail('A name in double quotes is missing here.');
    const name = take(string) ?? fail('This name has no closing quote.');
    if (skip() !== ':') fail('A colon is missing after the name.');
    at++;
    return `${name}: ${value(indent)}`;
  };
  const list = (open, close, indent, item) => {
    at++;
    if (skip() === close) { at++; return open + close; }
    const inner = indent + '  ', items = [];
    for (;;) {
      items.push(inner + item(inner));
      const end = skip();
      if (end === close) break;
      if (end !== ',') fail(end === undefined ? `The text ends before a closing ${close}.` : `A comma or ${close} is missing here.`);
      const comma = at++;
      if (skip() === close) fail(`Remove the comma before ${close}.`, comma);
    }
    at++;
    return `${open}\n${items.join(',\n')}\n${indent}${close}`;
  };

  try {
    const pretty = value('');
    if (skip() !== undefined) fail('The text goes on after the end of the value.');
    return { pretty, error: null };
  } catch (mistake) {
    if (mistake instanceof RangeError) return { pretty: text, error: null }; // too deep to be indented
    if (!(mistake instanceof Mistake)) throw mistake;
    const before = text.slice(0, mistake.at).split('\n');
    return { pretty: text, error: { line: before.length, column: before.at(-1).length + 1, message: mistake.message, at: mistake.at } };
  }
}
