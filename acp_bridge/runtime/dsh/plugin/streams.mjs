/** Model calls as they speak: frames to `bridge.stream` notifications, deltas of a block merged. */

/** Deltas of one block that come closer together than this leave as one. */
const MERGE_MS = 20
/**
 * With this much unread output, deltas wait and merge. Their text is bounded by the answer, which
 * the runtime holds as well; lines of some 150 bytes a token were not.
 */
const BACKLOG_BYTES_MAX = 256 * 1024

const KINDS = { 'text-delta': 'text', 'reasoning-delta': 'reasoning' }

export class Streams {
  #bridge
  /** Session id to the model call that it makes, or made last. */
  #calls = new Map()

  constructor(bridge) {
    this.#bridge = bridge
  }

  take(sessionId, frame) {
    if (frame.type === 'start') this.#start(sessionId, frame)
    else if (frame.type === 'chunk') this.#chunk(sessionId, frame.chunk)
    else if (frame.type === 'end') this.#end(sessionId, frame.outcome)
  }

  #start(sessionId, { turn, step }) {
    const last = this.#calls.get(sessionId)?.place
    const attempt = last?.turn === turn && last.step === step ? last.attempt + 1 : 1
    this.forget(sessionId)
    const place = { sessionId, turn, step, attempt }
    const call = { place, held: undefined, sentAt: 0, timer: undefined }
    this.#calls.set(sessionId, call)
    this.#tell(call, { event: 'start' })
  }

  #chunk(sessionId, chunk) {
    const kind = KINDS[chunk.type]
    const call = this.#calls.get(sessionId)
    if (kind === undefined || call === undefined || chunk.text === '') return
    if (call.held?.block !== chunk.index || call.held.kind !== kind) this.#send(call)
    call.held ??= { block: chunk.index, kind, text: '' }
    call.held.text += chunk.text
    // A first or a slow delta leaves at once: merging must not cost what streaming is for.
    if (Date.now() - call.sentAt >= MERGE_MS && !this.#isStalled()) this.#send(call)
    else this.#wait(call)
  }

  #end(sessionId, outcome) {
    const call = this.#calls.get(sessionId)
    if (call === undefined) return
    this.#send(call)
    const { kind, eventType, seq } = outcome
    const became = kind === 'committed' ? eventType.replace('assistant/', '') : 'abandoned'
    this.#tell(call, { event: 'end', outcome: became, seq })
  }

  /** Send what is held of a session, whatever the backlog: its row is about to follow. */
  flush(sessionId) {
    const call = this.#calls.get(sessionId)
    if (call !== undefined) this.#send(call)
  }

  forget(sessionId) {
    this.flush(sessionId)
    this.#calls.delete(sessionId)
  }

  #wait(call) {
    call.timer ??= setTimeout(this.#bridge.guarded('stream timer', () => {
      call.timer = undefined
      if (this.#isStalled()) this.#wait(call)
      else this.#send(call)
    }), MERGE_MS)
  }

  #send(call) {
    clearTimeout(call.timer)
    call.timer = undefined
    if (call.held === undefined) return
    const delta = { event: 'delta', ...call.held }
    call.held = undefined
    call.sentAt = Date.now()
    this.#tell(call, delta)
  }

  #tell(call, note) {
    this.#bridge.transport.notify('bridge.stream', { ...call.place, ...note })
  }

  #isStalled() {
    return (this.#bridge.transport.output?.writableLength ?? 0) > BACKLOG_BYTES_MAX
  }
}
