# What differs from one installation to the next. What makes this environment what it is stands in main.tf.
variable "region" {
  description = "AWS region, such as eu-central-1."
  type        = string

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.region))
    error_message = "region: set an AWS region such as eu-central-1."
  }
}

variable "zones" {
  description = "Availability zones of the subnets that are made; null: a, b and so on of the region. Named, so that a new zone moves nothing."
  type        = list(string)
  default     = null

  validation {
    condition     = var.zones == null || try(length(var.zones) >= 2 && alltrue([for one in var.zones : startswith(one, var.region)]), false)
    error_message = "zones: set two or more zones of the region, such as [\"eu-central-1a\", \"eu-central-1b\"], where it has no a, b and c."
  }
}

variable "project" {
  description = "First part of every name, and the tag Project."
  type        = string
  default     = "tailrace"
}

variable "existing_vpc" {
  description = "A VPC that is there already; null: one is made."
  type = object({
    vpc_id          = string
    cidr            = string
    subnet_ids      = list(string)
    route_table_ids = optional(list(string), [])
  })
  default = null
}

variable "create_endpoints" {
  description = "Whether to make the VPC's endpoints to AWS."
  type        = bool
  default     = true
}

variable "existing_kms_key_arn" {
  description = "A KMS key that is there already; null: one is made."
  type        = string
  default     = null
}

variable "image_uri" {
  description = "Image in ECR for the workers; null: the EMR release's own."
  type        = string
  default     = null
}

variable "artifacts_prefix" {
  description = "Prefix of the artifacts in their bucket."
  type        = string
  default     = "tailrace"
}

variable "streams" {
  description = "Streams to watch, by the name of the log that each reads: lag_seconds and silent_minutes, each 0 to have no such alarm."
  type = map(object({
    lag_seconds    = optional(number, 900)
    silent_minutes = optional(number, 15)
  }))
  default = {}
}

variable "landing" {
  description = "Where files land that streams read: by bucket name, the prefix in it."
  type        = map(string)
  default     = {}
}

variable "create_msk" {
  description = "Whether to make an MSK Serverless cluster."
  type        = bool
  default     = false
}

variable "kafka_bootstrap" {
  description = "Brokers of a Kafka that is there already; null: none."
  type        = string
  default     = null
}

variable "kafka_security" {
  description = "How clients sign in to an existing Kafka: plaintext, tls, iam, plain, scram-sha-256, scram-sha-512 or oauthbearer."
  type        = string
  default     = "tls"
}

variable "create_mwaa" {
  description = "Whether to make an MWAA environment. The artifacts have to be uploaded before."
  type        = bool
  default     = false
}

variable "mwaa" {
  description = "Airflow's version (3.1 or later), size, reach, and the versions of plugins.zip and requirements-mwaa.txt."
  type = object({
    airflow_version      = optional(string)
    environment_class    = optional(string, "mw1.small")
    max_workers          = optional(number, 2)
    public_webserver     = optional(bool, false)
    plugins_version      = optional(string)
    requirements_version = optional(string)
    options              = optional(map(string), {})
  })
  default = {}
}

variable "secrets" {
  description = "Secrets to make, without values: what each is for and which of stream, backfill and airflow may read it."
  type = map(object({
    description = string
    readers     = list(string)
  }))
  default = {}
}

variable "analyst_principals" {
  description = "ARNs of who may take the analysts' role."
  type        = list(string)
  default     = []
}

variable "alarm_emails" {
  description = "Addresses that alarms and budgets are sent to."
  type        = list(string)
  default     = []
}

variable "monthly_budget" {
  description = "US dollars a month that are planned; null: no budget."
  type        = number
  default     = null
}

variable "job_environment" {
  description = "More variables of drivers and executors."
  type        = map(string)
  default     = {}
}

variable "job_conf" {
  description = "More of Spark's settings for all jobs."
  type        = map(string)
  default     = {}
}
