/**
 * What a page looks like, as values; and the document made to look so, by as few changes as will do.
 *
 * Text is only ever text: there is no way from here to markup, so nothing that a job carries can
 * become a script. Elements with a `key` keep their identity when a list changes around them.
 */

/**
 * @typedef {object} Shape
 * @property {string} tag
 * @property {Record<string, any>} props
 * @property {string | number | null} key
 * @property {Child[]} children
 */

/** @typedef {Shape | string} Child */
/** @typedef {Shape | string | number | boolean | null | undefined | any[]} Given lists of them, too */

/**
 * @typedef {object} Kept What is remembered of an element that was made here.
 * @property {Shape} node
 * @property {Record<string, (event: any) => void>} on
 * @property {(() => void) | null} leave
 */

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "indeterminate", "selected", "open", "scrollTop"]);
const ADDRESSES = new Set(["href", "src", "action"]);

/** @type {WeakMap<ChildNode, Kept>} */
const kept = new WeakMap();

/**
 * An element. `class`, `style` (an object), `on…` (functions), properties and attributes are
 * `props`; of them `key` is the element's identity among its siblings, and `island(element)` leaves
 * the children to that function, which is called once and may return what to call at the end.
 *
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {Given[]} children
 * @returns {Shape}
 */
export function h(tag, props, ...children) {
  const { key = null, ...rest } = props ?? {};
  return { tag, props: rest, key, children: flat(children, []) };
}

/**
 * @param {Given[]} given
 * @param {Child[]} found
 */
function flat(given, found) {
  for (const one of given) {
    // Nothing keeps its place, as an empty text: so the siblings after it keep theirs.
    if (one === null || one === undefined || typeof one === "boolean") found.push("");
    else if (Array.isArray(one)) flat(one, found);
    else if (typeof one === "object") found.push(one);
    else found.push(String(one));
  }
  return found;
}

/**
 * Make the children of an element look like these.
 *
 * @param {Element} parent
 * @param {Given} given
 */
export function render(parent, given) {
  const wanted = flat([given], []);
  patchChildren(parent, wanted, parent.namespaceURI === SVG);
}

/**
 * @param {Element} parent
 * @param {Child[]} wanted
 * @param {boolean} svg
 */
function patchChildren(parent, wanted, svg) {
  /** @type {Map<string | number, ChildNode>} */
  const keyed = new Map();
  for (const child of parent.childNodes) {
    const key = keyOf(child);
    if (key !== null) keyed.set(key, child);
  }
  const stay = new Set(wanted.map((one) => (typeof one === "string" ? null : one.key)));
  let at = parent.firstChild;
  for (const child of wanted) {
    const key = typeof child === "string" ? null : child.key;
    while (at !== null && leaves(at, stay)) at = removed(at);
    if (at !== null && key === null && !fits(at, child) && keyOf(at) === null) at = removed(at);
    const old = key === null ? at : (keyed.get(key) ?? null);
    if (old !== null && fits(old, child)) {
      if (old === at) at = at.nextSibling;
      else parent.insertBefore(old, at);
      patch(old, child, svg);
    } else {
      parent.insertBefore(make(child, svg), at);
    }
  }
  while (at !== null) at = removed(at);
}

/** @param {ChildNode} old */
const keyOf = (old) => kept.get(old)?.node.key ?? null;

/**
 * Whether it had a key that nobody has any longer.
 *
 * @param {ChildNode} old
 * @param {Set<string | number | null>} stay
 */
function leaves(old, stay) {
  const key = keyOf(old);
  return key !== null && !stay.has(key);
}

/**
 * @param {ChildNode} old
 * @param {Child} child
 */
function fits(old, child) {
  if (typeof child === "string") return old.nodeType === Node.TEXT_NODE;
  const known = kept.get(old)?.node;
  return known !== undefined && known.tag === child.tag && known.key === child.key;
}

/**
 * @param {Child} child
 * @param {boolean} svg
 * @returns {ChildNode}
 */
function make(child, svg) {
  if (typeof child === "string") return document.createTextNode(child);
  const inside = svg || child.tag === "svg";
  const element = inside
    ? document.createElementNS(SVG, child.tag)
    : document.createElement(child.tag);
  kept.set(element, { node: { ...child, props: {}, children: [] }, on: {}, leave: null });
  patch(element, child, inside);
  const { island } = child.props;
  if (island !== undefined) /** @type {Kept} */ (kept.get(element)).leave = island(element) ?? null;
  return element;
}

/**
 * @param {ChildNode} old
 * @param {Child} child
 * @param {boolean} svg
 */
function patch(old, child, svg) {
  if (typeof child === "string") {
    if (old.nodeValue !== child) old.nodeValue = child;
    return;
  }
  const known = /** @type {Kept} */ (kept.get(old));
  if (known.node === child) return; // what is large may be kept by whoever made it
  const element = /** @type {HTMLElement} */ (old);
  const before = known.node.props;
  known.node = child;
  const inside = svg || child.tag === "svg";
  // Before the properties: the value of a select names one of its children.
  if (child.props.island === undefined) patchChildren(element, child.children, inside);
  for (const name of Object.keys(before)) {
    if (!(name in child.props)) set(element, known, name, undefined, before[name]);
  }
  for (const [name, value] of Object.entries(child.props)) {
    if (value !== before[name] || PROPERTIES.has(name)) {
      set(element, known, name, value, before[name]);
    }
  }
}

/**
 * @param {HTMLElement} element
 * @param {Kept} known
 * @param {string} name
 * @param {any} value
 * @param {any} before
 */
function set(element, known, name, value, before) {
  if (name === "island") return;
  if (name.startsWith("on")) {
    listen(element, known, name.slice(2), value);
  } else if (name === "style") {
    restyle(element, value ?? {}, before ?? {});
  } else if (PROPERTIES.has(name)) {
    const target = /** @type {any} */ (element);
    if (value !== undefined && target[name] !== value) target[name] = value;
  } else if (value === undefined || value === null || value === false) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, ADDRESSES.has(name) ? harmless(String(value)) : word(name, value));
  }
}

/**
 * @param {string} name
 * @param {any} value
 */
function word(name, value) {
  return value === true && !name.startsWith("aria-") ? "" : String(value);
}

/**
 * An address that leads to a place; one that would run something leads nowhere.
 *
 * @param {string} address
 */
export function harmless(address) {
  try {
    const { protocol } = new URL(address, document.baseURI);
    return protocol === "http:" || protocol === "https:" ? address : "about:blank";
  } catch {
    return "about:blank";
  }
}

/**
 * One listener for each kind of event, which calls whatever the last rendering gave.
 *
 * @param {HTMLElement} element
 * @param {Kept} known
 * @param {string} type
 * @param {((event: any) => void) | undefined} call
 */
function listen(element, known, type, call) {
  if (!(type in known.on)) element.addEventListener(type, (event) => known.on[type]?.(event));
  known.on[type] = call ?? (() => {});
}

/**
 * @param {HTMLElement} element
 * @param {Record<string, string>} wanted
 * @param {Record<string, string>} before
 */
function restyle(element, wanted, before) {
  for (const name of Object.keys(before)) {
    if (!(name in wanted)) element.style.removeProperty(name);
  }
  for (const [name, value] of Object.entries(wanted)) {
    if (before[name] !== value) element.style.setProperty(name, value);
  }
}

/**
 * The one after it, when it is gone.
 *
 * @param {ChildNode} old
 */
function removed(old) {
  const next = old.nextSibling;
  forget(old);
  old.remove();
  return next;
}

/** @param {ChildNode} old */
function forget(old) {
  const known = kept.get(old);
  if (known?.leave) known.leave();
  for (const child of old.childNodes) forget(child);
}
