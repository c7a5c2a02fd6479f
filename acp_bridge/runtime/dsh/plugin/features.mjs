/** What the plugin is built on, and what of it this version of the runtime has. */

export const PACKAGES = {
  sdk: '@deepseek-ai/dsh-sdk-jsonrpc-server',
  agent: '@deepseek-ai/dsh-agent',
  llm: '@deepseek-ai/dsh-llm',
  session: '@deepseek-ai/dsh-session',
  attachment: '@deepseek-ai/dsh-attachment',
  approval: '@deepseek-ai/dsh-user-approval',
  questions: '@deepseek-ai/dsh-user-questions',
  sandbox: '@deepseek-ai/dsh-sandbox-policy',
  mcp: '@deepseek-ai/dsh-mcp-client',
  boot: '@deepseek-ai/dsh-app-boot',
}

/** By feature: true, or what is missing for it. */
export function featuresOf({ ctx, packages, server }) {
  const service = (key, ...methods) => {
    const found = ctx.get(key)
    if (found === undefined) return `service ${key} is missing`
    const lacking = methods.find((method) => typeof found[method] !== 'function')
    return lacking === undefined ? undefined : `${key}.${lacking} is missing`
  }
  const from = (key, ...exported) => {
    const lacking = exported.find((one) => packages[key]?.[one] === undefined)
    return lacking === undefined ? undefined : `${PACKAGES[key]} does not export ${lacking}`
  }
  const inServer = (member) => {
    return server[member] instanceof Map ? undefined : `the SDK server has no ${member}`
  }
  const first = (...lacks) => lacks.find((lack) => lack !== undefined)

  const agents = service('agents', 'get', 'list', 'isOwnedBy', 'create', 'resume')
  const knobs = first(
    service('approval', 'effectivePolicy'),
    service('sandboxPolicy', 'overrideOf'),
    from('approval', 'setApprovalPolicy'),
    from('sandbox', 'SANDBOX_MODES', 'setSandboxMode'),
  )
  const selection = from('agent', 'installModelSelection')
  const open = first(agents, inServer('sessions'), inServer('sessionCreations'), selection)
  const flush = service('sessions', 'flush')
  const history = first(agents, service('sessionQuery', 'observeSession'))
  const llm = service('llm', 'listProviders', 'listModels', 'resolveModelInfo', 'resolveCallConfig')
  const message = first(from('llm', 'createUserMessage'), from('attachment', 'admitEncodedImages'))
  const needs = {
    stream: agents,
    approve: first(agents, service('approval', 'request')),
    judge: first(agents, knobs, from('sandbox', 'SandboxPolicyService')),
    ask_user: first(service('userQuestions', 'ask'), from('questions', 'UserQuestionError')),
    cancel: agents,
    close: first(open, service('subagents', 'drainDescendants'), flush),
    steer: first(agents, message),
    open,
    mcp: first(agents, service('tools', 'register'), from('mcp', 'createMcpToolDefinition')),
    prompt: first(agents, service('systemPrompt', 'assemble')),
    record: first(agents, from('session', 'appendPluginRecord')),
    models: first(llm, selection),
    mode: first(agents, knobs, service('planMode', 'get', 'set')),
    title: service('sessionTitle', 'get', 'rename'),
    compact: service('commands', 'execute'),
    history,
    fork: first(open, history, flush, from('session', 'buildForkSeed')),
  }
  return Object.fromEntries(Object.entries(needs).map(([key, lack]) => [key, lack ?? true]))
}
