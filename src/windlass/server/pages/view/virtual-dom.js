/**
 * Virtual DOM: `h` describes elements, `render` patches the document with minimal changes.
 *
 * Strings always become text nodes, never markup, so job data cannot become a script. Elements with
 * a `key` keep their identity when a list changes.
 */

/**
 * @typedef {object} VNode
 * @property {string} tag
 * @property {Record<string, any>} props
 * @property {string | number | null} key
 * @property {Child[]} children
 */

/** @typedef {VNode | string} Child */
/** @typedef {VNode | string | number | boolean | null | undefined | any[]} Renderable or lists */

/**
 * @typedef {object} ElementRecord State of an element created here.
 * @property {VNode} node
 * @property {Record<string, (event: any) => void>} on
 * @property {(() => void) | null} cleanup
 */

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "indeterminate", "selected", "open", "scrollTop"]);
const URL_ATTRIBUTES = new Set(["href", "src", "action"]);

/** @type {WeakMap<ChildNode, ElementRecord>} */
const records = new WeakMap();

/**
 * Describe an element. `props` holds `class`, `style` (an object), `on…` handlers, properties and
 * attributes. `key` identifies the element among its siblings. `island(element)` is called once,
 * manages the children itself, and may return a cleanup function.
 *
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {Renderable[]} children
 * @returns {VNode}
 */
export function h(tag, props, ...children) {
  const { key = null, ...rest } = props ?? {};
  return { tag, props: rest, key, children: flat(children, []) };
}

/**
 * @param {Renderable[]} given
 * @param {Child[]} found
 */
function flat(given, found) {
  for (const item of given) {
    // Empty values become empty text nodes, so that later siblings keep their positions.
    if (item === null || item === undefined || typeof item === "boolean") found.push("");
    else if (Array.isArray(item)) flat(item, found);
    else if (typeof item === "object") found.push(item);
    else found.push(String(item));
  }
  return found;
}

/**
 * Render content as the children of an element.
 *
 * @param {Element} parent
 * @param {Renderable} given
 */
export function render(parent, given) {
  const children = flat([given], []);
  patchChildren(parent, children, parent.namespaceURI === SVG);
}

/**
 * @param {Element} parent
 * @param {Child[]} children
 * @param {boolean} svg
 */
function patchChildren(parent, children, svg) {
  /** @type {Map<string | number, ChildNode>} */
  const keyed = new Map();
  for (const child of parent.childNodes) {
    const key = keyOf(child);
    if (key !== null) keyed.set(key, child);
  }
  const keys = new Set(children.map((child) => (typeof child === "string" ? null : child.key)));
  let at = parent.firstChild;
  for (const child of children) {
    const key = typeof child === "string" ? null : child.key;
    while (at !== null && isObsolete(at, keys)) at = removeNode(at);
    if (at !== null && key === null && !fits(at, child) && keyOf(at) === null) at = removeNode(at);
    const old = key === null ? at : (keyed.get(key) ?? null);
    if (old !== null && fits(old, child)) {
      if (old === at) at = at.nextSibling;
      else parent.insertBefore(old, at);
      patch(old, child, svg);
    } else {
      parent.insertBefore(make(child, svg), at);
    }
  }
  while (at !== null) at = removeNode(at);
}

/** @param {ChildNode} old */
const keyOf = (old) => records.get(old)?.node.key ?? null;

/**
 * Return whether the node had a key that is no longer in use.
 *
 * @param {ChildNode} old
 * @param {Set<string | number | null>} keys
 */
function isObsolete(old, keys) {
  const key = keyOf(old);
  return key !== null && !keys.has(key);
}

/**
 * @param {ChildNode} old
 * @param {Child} child
 */
function fits(old, child) {
  if (typeof child === "string") return old.nodeType === Node.TEXT_NODE;
  const known = records.get(old)?.node;
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
  records.set(element, { node: { ...child, props: {}, children: [] }, on: {}, cleanup: null });
  patch(element, child, inside);
  const { island } = child.props;
  if (island !== undefined)
    /** @type {ElementRecord} */ (records.get(element)).cleanup = island(element) ?? null;
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
  const known = /** @type {ElementRecord} */ (records.get(old));
  if (known.node === child) return; // unchanged: large nodes may be cached by their creator
  const element = /** @type {HTMLElement} */ (old);
  const before = known.node.props;
  known.node = child;
  const inside = svg || child.tag === "svg";
  // Before the properties: the value of a select refers to one of its children.
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
 * @param {ElementRecord} known
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
    element.setAttribute(
      name,
      URL_ATTRIBUTES.has(name) ? safeUrl(String(value)) : attributeValue(name, value),
    );
  }
}

/**
 * @param {string} name
 * @param {any} value
 */
function attributeValue(name, value) {
  return value === true && !name.startsWith("aria-") ? "" : String(value);
}

/**
 * Return an http(s) URL unchanged; any other becomes about:blank.
 *
 * @param {string} address
 */
export function safeUrl(address) {
  try {
    const { protocol } = new URL(address, document.baseURI);
    return protocol === "http:" || protocol === "https:" ? address : "about:blank";
  } catch {
    return "about:blank";
  }
}

/**
 * Add one listener per event type; it calls the handler of the last rendering.
 *
 * @param {HTMLElement} element
 * @param {ElementRecord} known
 * @param {string} type
 * @param {((event: any) => void) | undefined} call
 */
function listen(element, known, type, call) {
  if (!(type in known.on)) element.addEventListener(type, (event) => known.on[type]?.(event));
  known.on[type] = call ?? (() => {});
}

/**
 * @param {HTMLElement} element
 * @param {Record<string, string>} styles
 * @param {Record<string, string>} before
 */
function restyle(element, styles, before) {
  for (const name of Object.keys(before)) {
    if (!(name in styles)) element.style.removeProperty(name);
  }
  for (const [name, value] of Object.entries(styles)) {
    if (before[name] !== value) element.style.setProperty(name, value);
  }
}

/**
 * Remove a node and return its next sibling.
 *
 * @param {ChildNode} old
 */
function removeNode(old) {
  const next = old.nextSibling;
  runCleanups(old);
  old.remove();
  return next;
}

/** @param {ChildNode} old */
function runCleanups(old) {
  const known = records.get(old);
  if (known?.cleanup) known.cleanup();
  for (const child of old.childNodes) runCleanups(child);
}
