;;; acp-bridge-shell.el --- acp-bridge in agent-shell  -*- lexical-binding: t; -*-

;; M-x acp-bridge-shell starts a shell whose agent is acp-bridge.

(require 'agent-shell)

(defun acp-bridge-shell ()
  "Start an agent-shell with acp-bridge."
  (interactive)
  (agent-shell-start
   :config
   (agent-shell-make-agent-config
    :mode-line-name "ACP Bridge"
    :buffer-name "ACP Bridge"
    :shell-prompt "bridge> "
    :shell-prompt-regexp "bridge> "
    :client-maker (lambda (buffer)
                    (acp-make-client :command "acp-bridge"
                                     :command-params '("--model" "demo")
                                     :context-buffer buffer)))))

;;; acp-bridge-shell.el ends here
