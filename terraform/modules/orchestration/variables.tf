variable "create_mwaa" {
  description = "Whether to make an MWAA environment; false where Airflow is elsewhere or not used."
  type        = bool
  default     = true
}

variable "airflow_version" {
  description = "Airflow of the MWAA environment: one that MWAA offers, 3.1 or later. The newest that its API names is 3.0.6."
  type        = string
  default     = null

  validation {
    condition     = var.airflow_version == null ? !var.create_mwaa : can(regex("^3\\.[1-9][0-9]*\\.[0-9]+$", coalesce(var.airflow_version, "-")))
    error_message = "airflow_version: set a version that MWAA offers, 3.1 or later, such as 3.1.8: tailrace needs it. If MWAA offers none yet, set create_mwaa = false and run the DAGs in an Airflow of your own."
  }
}

variable "environment_class" {
  description = "Size of the environment."
  type        = string
  default     = "mw1.small"

  validation {
    condition     = contains(["mw1.small", "mw1.medium", "mw1.large", "mw1.xlarge", "mw1.2xlarge"], var.environment_class)
    error_message = "environment_class: set mw1.small, mw1.medium, mw1.large, mw1.xlarge or mw1.2xlarge."
  }
}

variable "max_workers" {
  description = "The most workers. Tasks wait for job runs and do little else."
  type        = number
  default     = 2

  validation {
    condition     = var.max_workers >= 1 && var.max_workers <= 25
    error_message = "max_workers: MWAA takes 1 to 25."
  }
}

variable "public_webserver" {
  description = "Whether Airflow's pages are reached from the internet, behind the AWS sign-in; false: from the VPC alone."
  type        = bool
  default     = false
}

variable "kms_key_arn" {
  description = "ARN of the key that MWAA encrypts with."
  type        = string
}

variable "execution_role_arn" {
  description = "ARN of MWAA's execution role; null without MWAA."
  type        = string
  default     = null
}

variable "artifacts_bucket" {
  description = "Name of the bucket of artifacts."
  type        = string
}

variable "artifacts_prefix" {
  description = "Prefix in the bucket of artifacts, with dags/, requirements-mwaa.txt and plugins.zip under it."
  type        = string
}

variable "plugins_version" {
  description = "Version of the object plugins.zip; null: the latest when the environment is made or changed. MWAA does not look for a newer one by itself."
  type        = string
  default     = null
}

variable "requirements_version" {
  description = "Version of the object requirements-mwaa.txt; null: the latest when the environment is made or changed."
  type        = string
  default     = null
}

variable "subnet_ids" {
  description = "Private subnets; MWAA takes the first two."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) >= 2
    error_message = "subnet_ids: MWAA needs two, in different zones."
  }
}

variable "security_group_id" {
  description = "Security group of the environment; null without MWAA."
  type        = string
  default     = null
}

variable "secrets_prefix" {
  description = "Prefix of the secrets in which Airflow looks for connections and variables, with no slash at its end."
  type        = string
}

variable "airflow_options" {
  description = "More of Airflow's configuration, such as { \"core.parallelism\" = \"16\" }."
  type        = map(string)
  default     = {}
}

variable "runner" {
  description = "What the DAGs need for their runners, which is put beside them as runner.json."
  type        = any
}
